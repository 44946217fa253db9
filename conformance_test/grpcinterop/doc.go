// Package grpcinterop runs gRPC's own interop client against gRPC's own interop
// server, with percore on either side and on both, alone and with grpcadapter: all
// cases that need no credentials of a cloud. The other cases need parts of gRPC that
// bring much with them is tested here, too: xDS servers and channelz.
package grpcinterop
