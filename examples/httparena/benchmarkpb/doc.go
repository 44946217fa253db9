// Package benchmarkpb is the generated code of HttpArena's gRPC service, which benchmark.proto
// describes.
//
// go generate needs protoc (Debian: protobuf-compiler), protoc-gen-go and protoc-gen-go-grpc.
package benchmarkpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative benchmark.proto
