// Package grpcinterop runs gRPC's own interop client against gRPC's own interop server. percore is
// on either side or on both, alone and with grpcadapter. It runs all cases that need no cloud
// credentials. It also runs grpc-go's own tests with NewServer, Wrap and NewClient, and the tests
// that need many dependencies: xDS servers, go-grpc-middleware and OpenTelemetry. The tests of
// channelz are in package channelz.
package grpcinterop
