// Package echopb is the generated code of the echo service that
// "percore serve" offers over gRPC; echo.proto describes it.
//
// go generate needs protoc (Debian: protobuf-compiler), protoc-gen-go and
// protoc-gen-go-grpc (go install google.golang.org/protobuf/cmd/protoc-gen-go
// and google.golang.org/grpc/cmd/protoc-gen-go-grpc).
package echopb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative echo.proto
