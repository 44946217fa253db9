package debug

import (
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"

	"github.com/percore/percore"
)

// A question is why people look at the page, with the charts that answer it.
type question struct {
	Title  string
	Charts []chart
}

// Idle reports whether all charts belong to adapters without traffic. The template calls it.
func (q question) Idle() bool {
	return !slices.ContainsFunc(q.Charts, func(c chart) bool { return !c.Idle })
}

// A chart shows a metric over the last minute. The script keeps its history, and shows the increase
// per second if Value is a counter. Charts of adapters without traffic are hidden.
type chart struct {
	ID, Title, Unit string
	Value           float64
	Counter         bool // the increase per second is shown
	Ratio           bool // the increase is divided by the increase of Per instead
	Per             float64
	Idle            bool // the adapter has no traffic
}

// charts makes the charts of the last reading.
func (v view) charts() []question {
	s, a := &v.Stats, &v.Accept
	questions := []question{
		{"Traffic", []chart{
			v.of("http http1_requests_total", "HTTP/1: requests"),
			v.of("http2 streams_total", "HTTP/2: requests"),
			v.of("grpc started_calls_total", "gRPC: calls"),
			v.of("reactor data_calls_total", "reactor: calls of Data"),
			v.of("websocket wakeups_total", "WebSockets: wake-ups"),
			v.of("client requests_total", "client: requests"),
			v.of("http2_client streams_total", "client, HTTP/2: streams"),
			v.of("grpc_client started_calls_total", "client, gRPC: calls"),
			counter("accepted", "connections accepted", "/s", float64(a.Accepted)),
			counter("closed", "connections closed", "/s", float64(s.Closed)),
			counter("moved", "moved by the kernel", "MB/s", float64(s.ZeroCopy.SendfileBytes+s.ZeroCopy.SpliceBytes)/1e6),
		}},
		{"Waiting", []chart{
			v.of("http connections parked", "HTTP/1: waiting"),
			v.of("http connections serving", "HTTP/1: being served"),
			v.of("http2 open_streams", "HTTP/2: being served"),
			v.of("grpc open_calls", "gRPC: being served"),
			v.of("reactor connections", "reactor: connections"),
			v.of("websocket sessions waiting", "WebSockets: waiting"),
			v.of("client connections busy", "client: busy"),
			v.of("http2_client open_streams", "client, HTTP/2: open"),
			v.of("grpc_client open_calls", "client, gRPC: open"),
			{ID: "open", Title: "connections open", Value: float64(s.Conns)},
		}},
		{"Slow clients, slow upstreams", []chart{
			v.of("http slow_answers", "HTTP/1: slow for 1 s"),
			v.of("http stalled_answers", "HTTP/1: answers wait"),
			v.of("http2 stalled_streams", "HTTP/2: answers wait"),
			v.of("reactor blocked_connections", "reactor: slow peers"),
			v.of("reactor unsent_bytes", "reactor: unsent bytes"),
			v.of("client unanswered_calls", "client: unanswered"),
			v.of("client waiting_calls", "client: no connection"),
		}},
		{"Memory", []chart{
			{ID: "heap", Title: "heap", Unit: "MiB", Value: heapMiB()},
			{ID: "goroutines", Title: "goroutines", Value: float64(runtime.NumGoroutine())},
			{ID: "inuse", Title: "buffers in use", Value: float64(s.Pool.BuffersInUse)},
			counter("gets", "buffers from the pool", "/s", float64(s.Pool.Gets)),
		}},
		{"Errors", []chart{
			v.of("admission refused_requests_total", "LimitWork: refused"),
			v.of("http2 breaches_total", "HTTP/2: breaches"),
			v.of("grpc refused_calls_total", "gRPC: calls refused"),
			v.of("reactor refused_writes_total", "reactor: refused writes"),
			v.of("client retries_total", "client: sent again"),
			v.of("http2_client failed_streams_total", "client, HTTP/2: failed"),
			counter("refused", "refused or lost", "/s", float64(a.Refused+a.BadHeaders+skipped(*a))),
			counter("backoffs", "lack of descriptors", "/s", float64(a.Backoffs)),
		}},
		{"Engine", []chart{
			counter("callbacks", "loops in callbacks", "ms/s", s.Loops.CallbackTime.Seconds()*1000),
			counter("slow", "callbacks of 10 ms", "/s", float64(s.Loops.SlowPasses)),
			counter("events", "events", "/s", float64(s.Loops.Events)),
			counter("wakeups", "wake-ups", "/s", float64(s.Loops.Wakeups)),
			{ID: "ratio", Title: "events per wake-up", Value: float64(s.Loops.Events), Counter: true, Per: float64(s.Loops.Wakeups), Ratio: true},
		}},
	}
	for i := range questions {
		q := &questions[i]
		q.Charts = slices.DeleteFunc(q.Charts, func(c chart) bool { return c.ID == "" })
	}
	return questions
}

// of makes the chart of an adapter's metric. It has no ID if the program doesn't have the adapter.
func (v view) of(metric, title string) chart {
	adapter, name, _ := strings.Cut(metric, " ")
	i := slices.IndexFunc(v.Adapters, func(a percore.AdapterStats) bool { return a.Adapter == adapter })
	if i < 0 {
		return chart{}
	}
	c := chart{ID: strings.ReplaceAll(metric, " ", "-"), Title: title, Value: of(metric)(&v.reading), Idle: v.Idle(v.Adapters[i])}
	if strings.HasSuffix(name, "_total") {
		c.Unit, c.Counter = "/s", true
	}
	return c
}

// counter makes a chart of an increase.
func counter(id, title, unit string, value float64) chart {
	return chart{ID: id, Title: title, Unit: unit, Value: value, Counter: true}
}

// heapMiB returns how large the objects of the heap are, garbage included.
func heapMiB() float64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return float64(sample[0].Value.Uint64()) / (1 << 20)
}
