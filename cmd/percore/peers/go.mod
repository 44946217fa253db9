// A module of its own: other libraries of event handlers, which are compared with package reactor.
module github.com/percore/percore/cmd/percore/peers

go 1.26.0

replace (
	github.com/percore/percore => ../../..
	github.com/percore/percore/adapters/grpcadapter => ../../../adapters/grpcadapter
	github.com/percore/percore/cmd/percore => ..
	github.com/percore/percore/metrics/prometheus => ../../../metrics/prometheus
)

require (
	github.com/cloudwego/netpoll v0.7.2
	github.com/lesismal/nbio v1.6.8
	github.com/panjf2000/gnet/v2 v2.9.7
	github.com/percore/percore v0.0.0-00010101000000-000000000000
	github.com/percore/percore/cmd/percore v0.0.0-00010101000000-000000000000
	go.uber.org/zap v1.27.0
	golang.org/x/tools v0.51.0
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/bytedance/gopkg v0.1.1 // indirect
	github.com/cloudwego/gopkg v0.1.4 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/molecule-man/go-brrr v1.0.1 // indirect
	github.com/panjf2000/ants/v2 v2.11.3 // indirect
	github.com/percore/percore/adapters/grpcadapter v0.0.0-00010101000000-000000000000 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/tidwall/btree v1.1.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/redcon v1.6.4 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasthttp v1.74.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
)
