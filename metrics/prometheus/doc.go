// Package prometheus exports percore's metrics ([percore.ReadStats]) as Prometheus metrics.
//
//	import percoreprom "github.com/percore/percore/metrics/prometheus"
//
//	reg.MustRegister(percoreprom.NewCollector())
//
// A program without its own registry serves [Handler]:
//
//	http.Handle("/metrics", percoreprom.Handler())
//
// The help texts say what each metric means, and docs/METRICS.md what to do about it.
// docs/grafana.json is a dashboard for them.
//
// # Names
//
// Names and units follow Prometheus' conventions: counters end in "_total", times are in seconds,
// sizes in bytes. The labels are:
//
//	network, address  of a listener, as its Addr has them
//	group, loop       the name of a group of loops, and the index of a loop in it
//	reason, path,     as the help texts say
//	state, kind, le
//
// Listeners with the same network and address share a port, and their metrics are added up. The number
// of series depends on the program: some ten for each listener and each loop in use, and fifty for
// everything else. When another listener or loop takes the place of one, its counters start at 0 again,
// as after a restart. Counters without such labels never restart while the process is running.
//
// The adapters that the program imports have metrics of their own, which begin with
//
//	percore_http_          httpadapter
//	percore_client_        httpadapter's NewTransport
//	percore_http2_         h2, and what httpadapter and grpcadapter serve with it
//	percore_http2_client_  clients of h2
//	percore_grpc_          servers of grpcadapter
//	percore_grpc_client_   grpcadapter's NewClient
//	percore_reactor_       reactor
//	percore_websocket_     wsadapter, and its package moving
//	percore_handover_      handover
//	percore_tls_           tlsfiles
//	percore_admission_     admission
//	percore_tcp_           metrics/tcpinfo
//
// # OpenTelemetry
//
// OpenTelemetry's bridge (go.opentelemetry.io/contrib/bridges/prometheus) turns the metrics of a
// registry into OpenTelemetry metrics:
//
//	reg := prometheus.NewRegistry()
//	reg.MustRegister(percoreprom.NewCollector())
//	reader := metric.NewPeriodicReader(exporter,
//		metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(reg))))
//	provider := metric.NewMeterProvider(metric.WithReader(reader))
//
// # A module of its own
//
// The package is a separate module, so that programs that import percore don't get Prometheus'
// client.
package prometheus
