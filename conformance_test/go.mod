module github.com/percore/percore/conformance_test

go 1.26.0

replace (
	github.com/percore/percore => ..
	github.com/percore/percore/adapters/grpcadapter => ../adapters/grpcadapter
)

require (
	github.com/percore/percore v0.0.0-00010101000000-000000000000
	github.com/percore/percore/adapters/grpcadapter v0.0.0-00010101000000-000000000000
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
