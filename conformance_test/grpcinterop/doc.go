// Package grpcinterop runs gRPC's own interop client against gRPC's own interop server. percore is
// on either side or on both, alone and with grpcadapter. It runs all cases that need no cloud
// credentials. It also tests the parts of gRPC that have many dependencies: xDS servers and
// channelz.
package grpcinterop
