package bench

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/load"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// Scenario is one thing to measure: a server and its load.
type Scenario struct {
	Name string // path-like, as benchstat reads it: "http/keepalive/conns=64"
	Core bool   // part of the core set, which runs by default

	spec    target.Spec
	job     load.Job
	spin    time.Duration // CPU time per request of target.AppSpin
	backend *target.Spec  // a second server, on package net, for spec to talk to
	both    bool          // backend is of the arm, too, and what it costs counts
	idle    int           // idle connections, or waiting requests, in addition to the connections of job
	memory  bool          // measure the memory of the idle connections, not a window
	procs   int           // processors of the server; the load has the others; 0: the run decides
	waiting bool          // with memory: each idle connection has a request whose handler waits
	streams int           // with waiting: as many requests wait on each connection; 0: one
	settles int           // how many times as long they are idle before the memory is measured; 0: once

	// share makes it an open loop, at this share of the rate that the last arm reaches in a closed
	// loop; 0 means a closed loop.
	share float64

	// pause makes it an open loop in which connections take turns, each once in this time.
	pause time.Duration

	// pauseMin and pauseMax make it an open loop in which each connection pauses for
	// a random time between them, independently of the others.
	pauseMin, pauseMax time.Duration

	// overload, if not 0, makes it an open loop at so many times the rate that target.AppBottleneck can
	// serve. Answers later than within don't count as good.
	overload float64
	within   time.Duration
}

// open reports whether the load of sc is an open loop.
func (sc Scenario) open() bool {
	return sc.share > 0 || sc.pause > 0 || sc.pauseMax > 0 || sc.overload > 0
}

// Scales reports whether sc is about the number of processors: Config.Scale chooses these
// scenarios.
func (sc Scenario) Scales() bool { return sc.procs > 0 }

// aboutIdle reports whether sc is about connections that are idle for a while: the adapters are for
// these.
func (sc Scenario) aboutIdle() bool { return sc.idle > 0 || sc.pause > 0 || sc.pauseMax > 0 }

// rate returns the operations per second of an open loop that doesn't depend on the arms, or else 0.
func (sc Scenario) rate() float64 {
	if sc.overload > 0 {
		return sc.overload * target.BottleneckPlaces / target.BottleneckTime.Seconds()
	}
	pause := max(sc.pause, (sc.pauseMin+sc.pauseMax)/2)
	if pause == 0 {
		return 0
	}
	return float64(sc.job.Conns) / pause.Seconds()
}

// result returns a result for the scenario, without samples.
func (sc Scenario) result() Result {
	return Result{Scenario: sc.Name, Procs: sc.procs, Headline: sc.headline()}
}

// headline names the metrics that a scenario is about.
func (sc Scenario) headline() []string {
	switch {
	case sc.memory:
		return []string{MetricResident, MetricHeap, MetricGoroutines}
	case sc.overload > 0:
		return []string{MetricGood, MetricP99, MetricRate, MetricRefused}
	case sc.spec.Computing: // which takes all available CPU time
		return []string{MetricRate, MetricP50, MetricP99}
	case sc.open():
		return []string{MetricCPU, MetricP50, MetricP99, MetricP999}
	case sc.procs > 0:
		return []string{MetricCPU, MetricRate, MetricP50, MetricP99, MetricSwitch, MetricMoves}
	}
	return []string{MetricCPU, MetricRate, MetricP50, MetricP99}
}

// conns returns how many connections a scenario holds open at once.
func (sc Scenario) conns() int { return sc.job.Conns + sc.idle/max(1, sc.streams) }

// Scenarios returns all scenarios in the order in which they run. idle is how many connections the
// scenarios about idle connections have.
func Scenarios(idle int) []Scenario {
	var all []Scenario
	for _, part := range [][]Scenario{
		keepAlive(), browsing(), encrypted(), documents(), oneRequest(), odd(), spinning(), overloading(), echoing(), serving(idle), grpcCalls(), streaming(), watching(idle),
		multiplexed(), multiplexedTransfers(),
		bursting(), transfers(), proxying(), calling(), besideComputing(), idling(idle), idleCalling(idle), multiplexedIdle(idle), waiting(idle), waking(idle), sparse(idle), scaling(processorCount()),
	} {
		all = append(all, part...)
	}
	return all
}

// keepAlive returns scenarios of small requests on connections that stay open.
func keepAlive() []Scenario {
	var all []Scenario
	for _, timeouts := range []bool{false, true} {
		name := "http/keepalive"
		if timeouts {
			name = "http/timeouts"
		}
		for _, n := range []int{1, 8, 64, 512} {
			all = append(all, Scenario{
				Name: fmt.Sprintf("%s/conns=%d", name, n),
				Core: !timeouts || n == 64,
				spec: target.Spec{App: target.AppHTTP, Timeouts: timeouts},
				job:  load.Job{Kind: load.KindHTTP, Conns: n},
			})
		}
	}
	return append(all, Scenario{
		Name:  "http/open/conns=64/load=0.5",
		Core:  true,
		spec:  target.Spec{App: target.AppHTTP},
		job:   load.Job{Kind: load.KindHTTP, Conns: 64},
		share: 0.5,
	})
}

// browsing returns scenarios of small requests with the header fields of a browser.
func browsing() []Scenario {
	var all []Scenario
	for _, n := range []int{64, 512} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("http/browser/conns=%d", n),
			Core: n == 64,
			spec: target.Spec{App: target.AppHTTP},
			job:  load.Job{Kind: load.KindHTTP, Conns: n, Browser: true},
		})
	}
	return all
}

// encrypted returns scenarios of small requests over TLS on connections that stay open. The
// handshakes are done before the window.
func encrypted() []Scenario {
	var all []Scenario
	for _, browser := range []bool{false, true} {
		name := "https/keepalive"
		if browser {
			name = "https/browser"
		}
		for _, n := range []int{8, 64, 512} {
			if browser && n != 64 {
				continue
			}
			all = append(all, Scenario{
				Name: fmt.Sprintf("%s/conns=%d", name, n),
				spec: target.Spec{App: target.AppHTTP, TLS: true},
				job:  load.Job{Kind: load.KindHTTP, Conns: n, Browser: browser, TLS: true},
			})
		}
	}
	return all
}

// documents returns scenarios of answers in JSON. One is short enough for net/http to announce its
// length. The other is longer than net/http buffers, and goes out in chunks.
func documents() []Scenario {
	var all []Scenario
	for _, kib := range []int{1, 32} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("http/json/%dKiB/conns=64", kib),
			spec: target.Spec{App: target.AppJSON, JSONBytes: kib << 10},
			job:  load.Job{Kind: load.KindHTTP, Conns: 64},
		})
	}
	return all
}

// oneRequest returns scenarios with one request per connection.
func oneRequest() []Scenario {
	return []Scenario{{
		Name: "http/close/conns=64",
		Core: true,
		spec: target.Spec{App: target.AppHTTP},
		job:  load.Job{Kind: load.KindHTTPClose, Conns: 64},
	}}
}

// odd returns scenarios of requests that aren't plain HTTP/1.1, though many clients send them, and of
// TLS whose listener the program has made.
func odd() []Scenario {
	const conns, kib = 64, 1 << 10
	var all []Scenario
	for _, o := range []struct{ name, app, kind, odd string }{
		{"chunked", target.AppUpload, load.KindHTTP, load.OddChunked},
		{"expect", target.AppUpload, load.KindHTTP, load.OddExpect},
		{"http10", target.AppHTTP, load.KindHTTP, load.OddVersion},
		{"http10-close", target.AppHTTP, load.KindHTTPClose, load.OddVersion},
		{"pragma", target.AppHTTP, load.KindHTTP, load.OddPragma},
		{"upgrade", target.AppUpgrade, load.KindHTTPClose, load.OddUpgrade},
	} {
		sc := Scenario{
			Name: fmt.Sprintf("http/odd/%s/conns=%d", o.name, conns),
			spec: target.Spec{App: o.app},
			job:  load.Job{Kind: o.kind, Conns: conns, Odd: o.odd},
		}
		if o.app == target.AppUpload {
			sc.job.Payload = kib
		}
		all = append(all, sc)
	}
	return append(all, Scenario{
		Name: fmt.Sprintf("https/odd/listener/conns=%d", conns),
		spec: target.Spec{App: target.AppHTTP, TLS: true, Wrapped: true},
		job:  load.Job{Kind: load.KindHTTP, Conns: conns, TLS: true},
	})
}

// spinning returns scenarios with handlers that keep the processors busy, below and at saturation.
func spinning() []Scenario {
	var all []Scenario
	for _, d := range []time.Duration{100 * time.Microsecond, time.Millisecond} {
		sc := Scenario{
			Name: fmt.Sprintf("cpu/%v/conns=64/saturated", d),
			Core: d == time.Millisecond,
			spec: target.Spec{App: target.AppSpin},
			job:  load.Job{Kind: load.KindHTTP, Conns: 64},
			spin: d,
		}
		below := sc
		below.Name, below.share = fmt.Sprintf("cpu/%v/conns=64/load=0.6", d), 0.6
		all = append(all, sc, below)
	}
	return all
}

// overloading returns scenarios of requests that are more than their handlers' bottleneck can serve, and
// fewer. Good answers come within 50 ms.
func overloading() []Scenario {
	var all []Scenario
	for _, times := range []float64{0.9, 2} {
		all = append(all, Scenario{
			Name:     fmt.Sprintf("http/overload/%v/conns=512/load=%v", target.BottleneckTime, times),
			spec:     target.Spec{App: target.AppBottleneck},
			job:      load.Job{Kind: load.KindHTTP, Conns: 512, Refused: true},
			overload: times,
			within:   50 * time.Millisecond,
		})
	}
	return all
}

// scaling returns scenarios of small requests to servers with 1, 2, 4, … and all n processors, with
// the same number of connections for each processor.
func scaling(n int) []Scenario {
	var http, echo []Scenario
	for _, procs := range scaleSteps(n) {
		http = append(http, Scenario{
			Name: fmt.Sprintf("scale/http/procs=%d", procs), Core: true, procs: procs,
			spec: target.Spec{App: target.AppHTTP},
			job:  load.Job{Kind: load.KindHTTP, Conns: 64 * procs},
		})
		echo = append(echo, Scenario{
			Name: fmt.Sprintf("scale/echo/procs=%d", procs), Core: true, procs: procs,
			spec: target.Spec{App: target.AppEcho},
			job:  load.Job{Kind: load.KindEcho, Conns: 64 * procs, Payload: 128},
		})
	}
	return append(http, echo...)
}

// scaleSteps returns the powers of two below n, and n.
func scaleSteps(n int) (steps []int) {
	for procs := 1; procs < n; procs *= 2 {
		steps = append(steps, procs)
	}
	return append(steps, n)
}

// echoing returns scenarios that send bytes there and back.
func echoing() []Scenario {
	var all []Scenario
	for _, n := range []int{1, 16, 256} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("echo/128B/conns=%d", n),
			Core: n != 16,
			spec: target.Spec{App: target.AppEcho},
			job:  load.Job{Kind: load.KindEcho, Conns: n, Payload: 128},
		})
	}
	for _, n := range []int{16, 256} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("echo/16KiB/conns=%d", n),
			spec: target.Spec{App: target.AppEcho},
			job:  load.Job{Kind: load.KindEcho, Conns: n, Payload: 16 << 10},
		})
	}
	return all
}

// serving returns scenarios of what event handlers are for besides an echo: a message to many
// connections, and pipelined commands; and of events to many clients over HTTP. An operation of these is
// a message or event to all, or 16 commands.
func serving(idle int) []Scenario {
	n := max(2, idle/10) // 1,000 by default
	return []Scenario{
		{
			Name: fmt.Sprintf("broadcast/100B/conns=%d", n),
			spec: target.Spec{App: target.AppBroadcast},
			job:  load.Job{Kind: load.KindBroadcast, Conns: n, Callers: 1, Payload: 100},
		},
		{
			Name: "resp/64B/pipeline=16/conns=64",
			spec: target.Spec{App: target.AppRESP},
			job:  load.Job{Kind: load.KindRESP, Conns: 64, Payload: 64, Pipeline: 16},
		},
		{
			Name: fmt.Sprintf("sse/broadcast/100B/conns=%d", idle), // 10,000 by default
			spec: target.Spec{App: target.AppEvents},
			job:  load.Job{Kind: load.KindEvents, Conns: idle, Callers: 1, Payload: 100},
		},
	}
}

// grpcCalls returns scenarios of unary RPCs, small and large. The number of callers is the total,
// not the number per connection.
func grpcCalls() []Scenario {
	var all []Scenario
	for _, g := range []struct {
		size           string
		payload        int
		conns, callers int
		core           bool
	}{
		{"128B", 128, 1, 1, true},
		{"128B", 128, 1, 64, false},
		{"128B", 128, 64, 64, true},
		{"128B", 128, 64, 256, false},
		{"1MiB", 1 << 20, 8, 8, false},
	} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("grpc/unary/%s/conns=%d/callers=%d", g.size, g.conns, g.callers),
			Core: g.core,
			spec: target.Spec{App: target.AppGRPC},
			job:  load.Job{Kind: load.KindGRPCUnary, Conns: g.conns, Callers: g.callers, Payload: g.payload},
		})
	}
	return all
}

// streaming returns scenarios of messages there and back on gRPC streams that stay open, and of calls
// that are answered by many messages. An operation of these is a call.
func streaming() []Scenario {
	var all []Scenario
	for _, n := range []int{1, 64} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("grpc/stream/128B/conns=%d", n),
			Core: n == 64,
			spec: target.Spec{App: target.AppGRPC},
			job:  load.Job{Kind: load.KindGRPCStream, Conns: n, Payload: 128},
		})
	}
	for _, n := range []int{1, 8} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("grpc/list/%dx128B/conns=%d", target.ListMessages, n),
			spec: target.Spec{App: target.AppGRPC},
			job:  load.Job{Kind: load.KindGRPCList, Conns: n, Payload: 128},
		})
	}
	return all
}

// watching returns scenarios of gRPC's server streams whose handlers wait. They measure memory.
func watching(idle int) []Scenario {
	conns := max(1, idle/100)
	streams := max(1, idle/conns) // 100 by default
	return []Scenario{{
		Name: fmt.Sprintf("grpc/waiting/conns=%d/streams=%d", conns, streams),
		spec: target.Spec{App: target.AppGRPC},
		job:  load.Job{Kind: load.KindGRPCWatch, Conns: 1},
		idle: conns * streams, memory: true, waiting: true, streams: streams,
	}}
}

// http2 returns a scenario of HTTP/2, over TLS or in clear (h2c).
func http2(name string, tls bool, conns, streams int) Scenario {
	protocol := "h2c"
	if tls {
		protocol = "h2"
	}
	return Scenario{
		Name: fmt.Sprintf("%s/%s/conns=%d/streams=%d", protocol, name, conns, streams),
		spec: target.Spec{App: target.AppHTTP, HTTP2: true, TLS: tls},
		job:  load.Job{Kind: load.KindHTTP2, Conns: conns, Streams: streams, TLS: tls},
	}
}

// multiplexed returns scenarios of small requests over HTTP/2, with as many open on each connection
// as streams says.
func multiplexed() []Scenario {
	var all []Scenario
	for _, tls := range []bool{false, true} {
		for _, n := range []struct{ conns, streams int }{{1, 1}, {64, 1}, {16, 32}, {64, 8}} {
			sc := http2("keepalive", tls, n.conns, n.streams)
			sc.Core = !tls && (n.streams == 32 || n.conns == 64 && n.streams == 1) || tls && n.streams == 8
			all = append(all, sc)
		}
		for _, n := range []struct{ conns, streams int }{{64, 1}, {16, 32}} {
			sc := http2("browser", tls, n.conns, n.streams)
			sc.job.Browser = true
			all = append(all, sc)
		}
	}
	open := http2("open", false, 64, 1)
	open.Name += "/load=0.5"
	open.share = 0.5
	return append(all, open)
}

// multiplexedTransfers returns scenarios of bodies over HTTP/2.
func multiplexedTransfers() []Scenario {
	var all []Scenario
	for _, u := range []struct{ kib, conns, streams int }{{1, 64, 1}, {1, 16, 32}, {64, 64, 1}, {64, 16, 8}} {
		sc := http2(fmt.Sprintf("upload/%dKiB", u.kib), false, u.conns, u.streams)
		sc.spec.App, sc.job.Payload = target.AppUpload, u.kib<<10
		all = append(all, sc)
	}
	for _, d := range []struct {
		name           string
		tls            bool
		conns, streams int
		window         int
	}{
		{"download/100KiB", false, 64, 1, 0},
		{"download/100KiB", false, 16, 8, 0},
		{"download/100KiB/window=64KiB", false, 64, 1, 1<<16 - 1},
		{"download/100KiB/window=64KiB", false, 16, 8, 1<<16 - 1},
		{"download/100KiB", true, 16, 8, 0},
	} {
		sc := http2(d.name, d.tls, d.conns, d.streams)
		sc.spec.App, sc.spec.JSONBytes, sc.job.Window = target.AppJSON, 100<<10, d.window
		all = append(all, sc)
	}
	return all
}

// multiplexedIdle returns scenarios of HTTP/2 connections without requests, and of requests whose
// handlers wait. They measure memory.
func multiplexedIdle(idle int) []Scenario {
	var all []Scenario
	for _, tls := range []bool{false, true} {
		for _, browser := range []bool{false, true} {
			sc := http2("", tls, 1, 1)
			protocol, _, _ := strings.Cut(sc.Name, "/")
			if browser {
				protocol += "/browser"
			}
			sc.Name = fmt.Sprintf("idle/%s/conns=%d", protocol, idle)
			sc.job.Browser, sc.idle, sc.memory = browser, idle, true
			sc.Core = !tls && !browser
			all = append(all, sc)
		}
	}
	streams := max(1, idle/100) // 100 by default
	sc := http2("waiting", false, 1, 1)
	sc.Name = fmt.Sprintf("h2c/waiting/conns=10/streams=%d", streams)
	sc.spec.App, sc.memory, sc.waiting = target.AppWaiting, true, true
	sc.idle, sc.streams = 10*streams, streams
	return append(all, sc)
}

// bursting returns scenarios of answers in many small slices, written with net.Buffers.
func bursting() []Scenario {
	var all []Scenario
	for _, b := range []struct{ slices, bytes, conns int }{
		{16, 256, 64},  // a message and its parts
		{1024, 512, 8}, // a message broker's flush
	} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("buffers/%dx%dB/conns=%d", b.slices, b.bytes, b.conns),
			spec: target.Spec{App: target.AppBuffers, Slices: b.slices, SliceBytes: b.bytes},
			job:  load.Job{Kind: load.KindBurst, Conns: b.conns, Payload: b.slices * b.bytes},
		})
	}
	return all
}

// besideComputing returns scenarios of requests to a server whose other goroutines keep every
// processor busy. They show how long a request waits for its turn.
func besideComputing() []Scenario {
	var all []Scenario
	for _, procs := range []int{1, 0} {
		name := "computing/http/conns=16"
		if procs > 0 {
			name += fmt.Sprintf("/procs=%d", procs)
		}
		all = append(all, Scenario{
			Name: name,
			spec: target.Spec{App: target.AppHTTP, Procs: procs, Computing: true},
			job:  load.Job{Kind: load.KindHTTP, Conns: 16},
		})
	}
	for _, size := range []struct {
		name    string
		payload int
	}{{"128B", 128}, {"16KiB", 16 << 10}} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("computing/echo/%s/conns=16", size.name),
			spec: target.Spec{App: target.AppEcho, Computing: true},
			job:  load.Job{Kind: load.KindEcho, Conns: 16, Payload: size.payload},
		})
	}
	return all
}

// fileSizes are the downloads. Their names are the file names in the directory that the file server
// serves.
var fileSizes = []struct {
	name  string
	bytes int64
}{{"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"64MiB", 64 << 20}}

// transfers returns scenarios that download files and upload bodies.
func transfers() []Scenario {
	var all []Scenario
	for _, f := range fileSizes {
		all = append(all, Scenario{
			Name: fmt.Sprintf("download/%s/conns=8", f.name),
			Core: f.name == "1MiB",
			spec: target.Spec{App: target.AppFiles},
			job:  load.Job{Kind: load.KindHTTP, Conns: 8, Path: "/" + f.name},
		})
	}
	for _, f := range fileSizes[1:3] {
		all = append(all, Scenario{
			Name: fmt.Sprintf("upload/%s/conns=8", f.name),
			spec: target.Spec{App: target.AppUpload},
			job:  load.Job{Kind: load.KindHTTP, Conns: 8, Payload: int(f.bytes)},
		})
	}
	return all
}

// proxying returns scenarios with a server between the client and another server. Only the server
// in the middle is measured. In proxy/client it calls the other with the arm's client.
func proxying() []Scenario {
	client := target.Spec{App: target.AppProxyHTTP, Client: true}
	withTLS := client
	withTLS.TLS = true
	return []Scenario{
		{
			Name:    "proxy/tcp/128B/conns=64",
			spec:    target.Spec{App: target.AppProxyTCP},
			backend: &target.Spec{App: target.AppEcho},
			job:     load.Job{Kind: load.KindEcho, Conns: 64, Payload: 128},
		},
		{
			Name:    "proxy/tcp/1MiB/conns=8",
			spec:    target.Spec{App: target.AppProxyTCP},
			backend: &target.Spec{App: target.AppFiles},
			job:     load.Job{Kind: load.KindHTTP, Conns: 8, Path: "/1MiB"},
		},
		{
			Name:    "proxy/http/conns=64",
			spec:    target.Spec{App: target.AppProxyHTTP},
			backend: &target.Spec{App: target.AppHTTP},
			job:     load.Job{Kind: load.KindHTTP, Conns: 64},
		},
		{
			Name:    "proxy/client/conns=64",
			spec:    client,
			backend: &target.Spec{App: target.AppHTTP},
			job:     load.Job{Kind: load.KindHTTP, Conns: 64},
		},
		{
			Name:    "proxy/client/browser/conns=64",
			spec:    client,
			backend: &target.Spec{App: target.AppHTTP},
			job:     load.Job{Kind: load.KindHTTP, Conns: 64, Browser: true},
		},
		{
			Name:    "proxy/client/100KiB/conns=64",
			spec:    client,
			backend: &target.Spec{App: target.AppJSON, JSONBytes: 100 << 10},
			job:     load.Job{Kind: load.KindHTTP, Conns: 64},
		},
		{
			Name:    "proxy/client/https/conns=64",
			spec:    withTLS,
			backend: &target.Spec{App: target.AppHTTP},
			job:     load.Job{Kind: load.KindHTTP, Conns: 64, TLS: true},
		},
	}
}

// calling returns scenarios of clients of HTTP and gRPC, with so many calls at a time. An operation is
// target.CallsPerRequest calls, or one with long bodies or many messages. The request that starts them
// is a small part of the cost.
func calling() []Scenario {
	var all []Scenario
	for _, n := range []int{1, 8, 64, 512} {
		all = append(all, Scenario{
			Name:    fmt.Sprintf("client/http/calls=%d", n),
			spec:    target.Spec{App: target.AppCaller},
			backend: &target.Spec{App: target.AppHTTP},
			job:     load.Job{Kind: load.KindHTTP, Conns: n},
		})
	}
	if runtime.GOOS == "linux" { // see target.Spec.Hosts
		all = append(all, Scenario{
			Name:    "client/http/hosts=100/calls=64",
			spec:    target.Spec{App: target.AppCaller, CallHosts: 100},
			backend: &target.Spec{App: target.AppHTTP, Hosts: 100},
			job:     load.Job{Kind: load.KindHTTP, Conns: 64},
		})
	}
	all = append(all, Scenario{
		Name:    "client/https/calls=64",
		spec:    target.Spec{App: target.AppCaller, CallTLS: true},
		backend: &target.Spec{App: target.AppHTTP, TLS: true},
		job:     load.Job{Kind: load.KindHTTP, Conns: 64},
	})
	for _, h := range []struct {
		name         string
		tls          bool
		conns, calls int
	}{{"h2c", false, 1, 1}, {"h2c", false, 1, 64}, {"h2c", false, 16, 512}, {"h2", true, 1, 64}} {
		all = append(all, Scenario{
			Name:    fmt.Sprintf("client/%s/conns=%d/calls=%d", h.name, h.conns, h.calls),
			spec:    target.Spec{App: target.AppCaller, CallTLS: h.tls, CallHTTP2: h.conns},
			backend: &target.Spec{App: target.AppHTTP, TLS: h.tls, HTTP2: true},
			job:     load.Job{Kind: load.KindHTTP, Conns: h.calls},
		})
	}
	all = append(all, callingGRPC()...)
	for _, app := range []string{target.AppUpload, target.AppMirror} { // bodies one way, and both ways
		for _, f := range []struct {
			name               string
			bytes, calls, each int
		}{{"1KiB", 1 << 10, 64, 0}, {"1MiB", 1 << 20, 8, 1}} {
			all = append(all, Scenario{
				Name:    fmt.Sprintf("client/%s/%s/calls=%d", app, f.name, f.calls),
				spec:    target.Spec{App: target.AppCaller, CallBytes: f.bytes, Calls: f.each},
				backend: &target.Spec{App: app},
				job:     load.Job{Kind: load.KindHTTP, Conns: f.calls},
			})
		}
	}
	for _, f := range []struct {
		name        string
		calls, each int
	}{{"4KiB", 64, 0}, {"1MiB", 8, 1}} {
		all = append(all, Scenario{
			Name:    fmt.Sprintf("client/download/%s/calls=%d", f.name, f.calls),
			spec:    target.Spec{App: target.AppCaller, CallPath: "/" + f.name, Calls: f.each},
			backend: &target.Spec{App: target.AppFiles},
			job:     load.Job{Kind: load.KindHTTP, Conns: f.calls},
		})
	}
	return all
}

// callingGRPC returns those of gRPC: unary calls, answers of many messages, and messages there and back
// on streams that stay open. In "both" server and client are of the arm.
func callingGRPC() []Scenario {
	var all []Scenario
	for _, g := range []struct {
		name         string
		kind         string
		bytes        int
		conns, calls int
		each         int
		both         bool
	}{
		{"client/grpc/128B", "", 128, 1, 1, 0, false},
		{"client/grpc/128B", "", 128, 1, 64, 0, false},
		{"client/grpc/128B", "", 128, 64, 64, 0, false},
		{"client/grpc/1MiB", "", 1 << 20, 8, 8, 1, false},
		{"client/grpc/list/1000x128B", target.CallList, 128, 1, 1, 1, false},
		{"client/grpc/list/1000x128B", target.CallList, 128, 8, 8, 1, false},
		{"client/grpc/pingpong/128B", target.CallPingPong, 128, 1, 1, 0, false},
		{"client/grpc/pingpong/128B", target.CallPingPong, 128, 1, 64, 0, false},
		{"client/grpc/pingpong/128B", target.CallPingPong, 128, 64, 64, 0, false},
		{"both/grpc/128B", "", 128, 1, 64, 0, true},
		{"both/grpc/128B", "", 128, 64, 64, 0, true},
	} {
		all = append(all, Scenario{
			Name:    fmt.Sprintf("%s/conns=%d/calls=%d", g.name, g.conns, g.calls),
			spec:    target.Spec{App: target.AppCaller, CallConns: g.conns, CallBytes: g.bytes, CallKind: g.kind, Calls: g.each},
			backend: &target.Spec{App: target.AppGRPC},
			both:    g.both,
			job:     load.Job{Kind: load.KindHTTP, Conns: g.calls},
		})
	}
	return all
}

// idling returns scenarios of connections on which nothing happens. They measure the memory of
// these connections, and what they cost the busy connections.
func idling(idle int) []Scenario {
	one := func(kind string, tls bool) load.Job {
		return load.Job{Kind: kind, Conns: 1, Payload: 0, TLS: tls}
	}
	few := max(1, idle/10) // a gRPC client's connection is expensive for the client
	many := idle + idle/2
	return []Scenario{
		{
			Name: fmt.Sprintf("idle/http/conns=%d", idle), Core: true,
			spec: target.Spec{App: target.AppHTTP},
			job:  one(load.KindHTTP, false), idle: idle, memory: true,
		},
		{
			Name: fmt.Sprintf("idle/https/conns=%d", idle),
			spec: target.Spec{App: target.AppHTTP, TLS: true},
			job:  one(load.KindHTTP, true), idle: idle, memory: true,
		},
		{
			Name: fmt.Sprintf("idle/https-listener/conns=%d", idle),
			spec: target.Spec{App: target.AppHTTP, TLS: true, Wrapped: true},
			job:  one(load.KindHTTP, true), idle: idle, memory: true,
		},
		{
			Name: fmt.Sprintf("idle/echo/conns=%d", idle),
			spec: target.Spec{App: target.AppEcho},
			job:  load.Job{Kind: load.KindEcho, Conns: 1, Payload: 128}, idle: idle, memory: true,
		},
		{
			Name: fmt.Sprintf("idle/grpc/conns=%d", few),
			spec: target.Spec{App: target.AppGRPC},
			job:  one(load.KindGRPCUnary, false), idle: few, memory: true,
		},
		{
			Name: fmt.Sprintf("idle/grpc-tls/conns=%d", few),
			spec: target.Spec{App: target.AppGRPC, TLS: true},
			job:  one(load.KindGRPCUnary, true), idle: few, memory: true,
		},
		{
			Name: fmt.Sprintf("idle+busy/http/idle=%d/conns=64", many), Core: true,
			spec: target.Spec{App: target.AppHTTP},
			job:  load.Job{Kind: load.KindHTTP, Conns: 64}, idle: many,
		},
	}
}

// scheme returns the scheme of HTTP's URLs.
func scheme(tls bool) string {
	if tls {
		return "https"
	}
	return "http"
}

// idleCalling returns scenarios of connections of a client on which nothing happens. They measure the
// client's memory. Each connection of gRPC has a client of its own.
func idleCalling(idle int) []Scenario {
	var all []Scenario
	for _, tls := range []bool{false, true} {
		all = append(all, Scenario{
			Name:    fmt.Sprintf("idle/client/%s/conns=%d", scheme(tls), idle),
			spec:    target.Spec{App: target.AppCaller, CallTLS: tls, CallIdle: idle},
			backend: &target.Spec{App: target.AppHTTP, TLS: tls},
			job:     load.Job{Kind: load.KindHTTP, Conns: 1},
			idle:    idle, memory: true,
		})
	}
	few := max(1, idle/10)
	return append(all, Scenario{
		Name:    fmt.Sprintf("idle/client/grpc/conns=%d", few),
		spec:    target.Spec{App: target.AppCaller, CallConns: 1, CallIdle: few},
		backend: &target.Spec{App: target.AppGRPC},
		job:     load.Job{Kind: load.KindHTTP, Conns: 1},
		idle:    few, memory: true,
		settles: 3, // the goroutines of a client's pool end after two seconds
	})
}

// waiting returns scenarios of requests whose handlers wait, as long polls do. They measure memory.
func waiting(idle int) []Scenario {
	n := max(1, idle*2/5) // 4,000 by default
	var all []Scenario
	for _, tls := range []bool{false, true} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("%s/waiting/conns=%d", scheme(tls), n),
			spec: target.Spec{App: target.AppWaiting, TLS: tls},
			job:  load.Job{Kind: load.KindHTTP, Conns: 1, TLS: tls},
			idle: n, memory: true, waiting: true,
		})
	}
	return all
}

const (
	// wakingPause is how long a connection of waking is left alone between two requests.
	wakingPause = time.Second

	// wakingMin is the minimum number of connections of waking. With this many random arrivals, a
	// turn takes the pause to within a tenth.
	wakingMin = 100
)

// waking returns scenarios of requests on connections that were idle for a while. They show what waking
// up costs a request.
func waking(idle int) []Scenario {
	n := max(wakingMin, idle/5) // 2,000 by default, which are 2,000 requests a second
	return []Scenario{{
		Name:  fmt.Sprintf("http/unpark/conns=%d", n),
		spec:  target.Spec{App: target.AppHTTP},
		job:   load.Job{Kind: load.KindHTTP, Conns: n},
		pause: wakingPause,
	}}
}

// sparse returns scenarios of many connections with a request now and then.
func sparse(idle int) []Scenario {
	n := max(wakingMin, idle*2/5) // 4,000 by default, which are 10,000 requests a second
	return []Scenario{{
		Name:     fmt.Sprintf("http/sparse/conns=%d", n),
		spec:     target.Spec{App: target.AppHTTP},
		job:      load.Job{Kind: load.KindHTTP, Conns: n},
		pauseMin: 200 * time.Millisecond,
		pauseMax: 600 * time.Millisecond,
	}}
}
