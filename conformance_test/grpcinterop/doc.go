// Package grpcinterop runs gRPC's own interop client against gRPC's own interop server. percore is
// on either side or on both, alone and with grpcadapter. It runs all cases that need no cloud
// credentials. It also runs grpc-go's own tests with NewServer, Wrap and NewClient, and tests what has
// many dependencies: xDS servers, go-grpc-middleware and OpenTelemetry. Package channelz has its own.
package grpcinterop
