// Package grpcinterop runs gRPC's own interop client against gRPC's own interop
// server, with percore on the server's side: all cases that need no credentials
// of a cloud.
package grpcinterop
