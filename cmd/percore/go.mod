module github.com/percore/percore/cmd/percore

go 1.26.0

replace (
	github.com/percore/percore => ../..
	github.com/percore/percore/adapters/grpcadapter => ../../adapters/grpcadapter
	github.com/percore/percore/metrics/prometheus => ../../metrics/prometheus
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/jhump/protoreflect/v2 v2.0.0
	github.com/percore/percore v0.0.0-00010101000000-000000000000
	github.com/percore/percore/adapters/grpcadapter v0.0.0-00010101000000-000000000000
	github.com/percore/percore/metrics/prometheus v0.0.0-00010101000000-000000000000
	github.com/prometheus/procfs v0.22.0
	github.com/tidwall/redcon v1.6.4
	github.com/valyala/fasthttp v1.74.0
	golang.org/x/sync v0.25.0
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/tidwall/btree v1.1.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/gorilla/websocket v1.5.3
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/molecule-man/go-brrr v1.0.1 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.62.0
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)
