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

// scenarios is a list that is being made.
type scenarios []Scenario

// add adds a scenario. A name that begins with a * is one of the core set.
func (all *scenarios) add(name string, sc Scenario) {
	sc.Name, sc.Core = strings.CutPrefix(name, "*")
	*all = append(*all, sc)
}

// ofHTTP returns a scenario of requests over HTTP/1.1 to an app.
func ofHTTP(app string, conns int) Scenario {
	return Scenario{spec: target.Spec{App: app}, job: load.Job{Kind: load.KindHTTP, Conns: conns}}
}

// ofTLS returns sc with TLS between the load and the server.
func ofTLS(sc Scenario) Scenario {
	sc.spec.TLS, sc.job.TLS = true, true
	return sc
}

// ofHTTP2 returns a scenario of HTTP/2, over TLS or in clear, with streams open on each connection.
func ofHTTP2(app string, tls bool, conns, streams int) Scenario {
	return Scenario{
		spec: target.Spec{App: app, HTTP2: true, TLS: tls},
		job:  load.Job{Kind: load.KindHTTP2, Conns: conns, Streams: streams, TLS: tls},
	}
}

// ofBytes returns a scenario of a protocol below HTTP.
func ofBytes(app, kind string, conns, payload int) Scenario {
	return Scenario{spec: target.Spec{App: app}, job: load.Job{Kind: kind, Conns: conns, Payload: payload}}
}

// idling returns sc with n idle connections, whose memory is measured. One connection warms the server
// up.
func idling(sc Scenario, n int) Scenario {
	sc.job.Conns, sc.idle, sc.memory = 1, n, true
	return sc
}

// name2 is "h2" over TLS, and "h2c" in clear.
func name2(tls bool) string {
	if tls {
		return "h2"
	}
	return "h2c"
}

// name1 is "https" over TLS, and "http" in clear.
func name1(tls bool) string {
	if tls {
		return "https"
	}
	return "http"
}

// Scenarios returns all scenarios in the order in which they run. idle is how many connections the
// scenarios about idle connections have.
func Scenarios(idle int) []Scenario {
	var all scenarios
	all.addHTTP()
	all.addOdd()
	all.addBusy()
	all.addBytes(idle)
	all.addGRPC(idle)
	all.addHTTP2()
	all.addTransfers()
	all.addProxies()
	all.addClients()
	all.addComputing()
	all.addIdle(idle)
	all.addIdleClients(idle)
	all.addWaiting(idle)
	all.addScaling(processorCount())
	return all
}

// addHTTP adds small requests on connections that stay open, answers in JSON, of which one is longer
// than net/http buffers and goes out in chunks, and a connection for each request.
func (all *scenarios) addHTTP() {
	for _, n := range []int{1, 8, 64, 512} {
		all.add(fmt.Sprintf("*http/keepalive/conns=%d", n), ofHTTP(target.AppHTTP, n))
	}
	timeouts, open := ofHTTP(target.AppHTTP, 64), ofHTTP(target.AppHTTP, 64)
	timeouts.spec.Timeouts = true
	all.add("*http/timeouts/conns=64", timeouts)
	open.share = 0.5
	all.add("*http/open/conns=64/load=0.5", open)
	browser := ofHTTP(target.AppHTTP, 64)
	browser.job.Browser = true
	all.add("*http/browser/conns=64", browser)
	for _, n := range []int{8, 64, 512} {
		all.add(fmt.Sprintf("https/keepalive/conns=%d", n), ofTLS(ofHTTP(target.AppHTTP, n)))
	}
	all.add("https/browser/conns=64", ofTLS(browser))
	browser.job.Conns = 512
	all.add("http/browser/conns=512", browser)
	for _, kib := range []int{1, 32} {
		sc := ofHTTP(target.AppJSON, 64)
		sc.spec.JSONBytes = kib << 10
		all.add(fmt.Sprintf("http/json/%dKiB/conns=64", kib), sc)
	}
	once := ofHTTP(target.AppHTTP, 64)
	once.job.Kind = load.KindHTTPClose
	all.add("*http/close/conns=64", once)
}

// addOdd adds requests that aren't plain HTTP/1.1, though many clients send them, and TLS whose listener
// the program has made.
func (all *scenarios) addOdd() {
	for _, o := range []struct{ name, app, kind, odd string }{
		{"chunked", target.AppUpload, load.KindHTTP, load.OddChunked},
		{"expect", target.AppUpload, load.KindHTTP, load.OddExpect},
		{"http10", target.AppHTTP, load.KindHTTP, load.OddVersion},
		{"http10-close", target.AppHTTP, load.KindHTTPClose, load.OddVersion},
		{"pragma", target.AppHTTP, load.KindHTTP, load.OddPragma},
		{"upgrade", target.AppUpgrade, load.KindHTTPClose, load.OddUpgrade},
	} {
		sc := ofHTTP(o.app, 64)
		sc.job.Kind, sc.job.Odd = o.kind, o.odd
		if o.app == target.AppUpload {
			sc.job.Payload = 1 << 10
		}
		all.add("http/odd/"+o.name+"/conns=64", sc)
	}
	wrapped := ofTLS(ofHTTP(target.AppHTTP, 64))
	wrapped.spec.Wrapped = true
	all.add("https/odd/listener/conns=64", wrapped)
}

// addBusy adds handlers that keep the processors busy, below and at saturation, and requests that are
// more than their handlers' bottleneck can serve, and fewer. Good answers come within 50 ms.
func (all *scenarios) addBusy() {
	for _, d := range []time.Duration{100 * time.Microsecond, time.Millisecond} {
		core := ""
		if d == time.Millisecond {
			core = "*"
		}
		sc := ofHTTP(target.AppSpin, 64)
		sc.spin = d
		all.add(fmt.Sprintf("%scpu/%v/conns=64/saturated", core, d), sc)
		sc.share = 0.6
		all.add(fmt.Sprintf("%scpu/%v/conns=64/load=0.6", core, d), sc)
	}
	for _, times := range []float64{0.9, 2} {
		sc := ofHTTP(target.AppBottleneck, 512)
		sc.job.Refused, sc.overload, sc.within = true, times, 50*time.Millisecond
		all.add(fmt.Sprintf("http/overload/%v/conns=512/load=%v", target.BottleneckTime, times), sc)
	}
}

// addBytes adds bytes there and back, a message or an event to many connections, pipelined commands, and
// answers in many small slices, written with net.Buffers. An operation is a message or event to all, or
// 16 commands.
func (all *scenarios) addBytes(idle int) {
	all.add("*echo/128B/conns=1", ofBytes(target.AppEcho, load.KindEcho, 1, 128))
	all.add("echo/128B/conns=16", ofBytes(target.AppEcho, load.KindEcho, 16, 128))
	all.add("*echo/128B/conns=256", ofBytes(target.AppEcho, load.KindEcho, 256, 128))
	all.add("echo/16KiB/conns=16", ofBytes(target.AppEcho, load.KindEcho, 16, 16<<10))
	all.add("echo/16KiB/conns=256", ofBytes(target.AppEcho, load.KindEcho, 256, 16<<10))
	n := max(2, idle/10) // 1,000 by default
	broadcast, events := ofBytes(target.AppBroadcast, load.KindBroadcast, n, 100), ofBytes(target.AppEvents, load.KindEvents, idle, 100)
	broadcast.job.Callers, events.job.Callers = 1, 1
	all.add(fmt.Sprintf("broadcast/100B/conns=%d", n), broadcast)
	commands := ofBytes(target.AppRESP, load.KindRESP, 64, 64)
	commands.job.Pipeline = 16
	all.add("resp/64B/pipeline=16/conns=64", commands)
	all.add(fmt.Sprintf("sse/broadcast/100B/conns=%d", idle), events)
	for _, b := range []struct{ slices, bytes, conns int }{
		{16, 256, 64},  // a message and its parts
		{1024, 512, 8}, // a message broker's flush
	} {
		sc := ofBytes(target.AppBuffers, load.KindBurst, b.conns, b.slices*b.bytes)
		sc.spec.Slices, sc.spec.SliceBytes = b.slices, b.bytes
		all.add(fmt.Sprintf("buffers/%dx%dB/conns=%d", b.slices, b.bytes, b.conns), sc)
	}
}

// addGRPC adds unary calls, small and large, messages there and back on streams that stay open, and
// streams of the server whose handlers wait, whose memory is measured. The number of callers is the
// total, not the number per connection.
func (all *scenarios) addGRPC(idle int) {
	for _, g := range []struct {
		name           string
		payload        int
		conns, callers int
	}{
		{"*grpc/unary/128B", 128, 1, 1},
		{"grpc/unary/128B", 128, 1, 64},
		{"*grpc/unary/128B", 128, 64, 64},
		{"grpc/unary/128B", 128, 64, 256},
		{"grpc/unary/1MiB", 1 << 20, 8, 8},
	} {
		sc := ofBytes(target.AppGRPC, load.KindGRPCUnary, g.conns, g.payload)
		sc.job.Callers = g.callers
		all.add(fmt.Sprintf("%s/conns=%d/callers=%d", g.name, g.conns, g.callers), sc)
	}
	all.add("grpc/stream/128B/conns=1", ofBytes(target.AppGRPC, load.KindGRPCStream, 1, 128))
	all.add("*grpc/stream/128B/conns=64", ofBytes(target.AppGRPC, load.KindGRPCStream, 64, 128))
	conns := max(1, idle/100)
	streams := max(1, idle/conns) // 100 by default
	sc := idling(ofBytes(target.AppGRPC, load.KindGRPCWatch, 1, 0), conns*streams)
	sc.waiting, sc.streams = true, streams
	all.add(fmt.Sprintf("grpc/waiting/conns=%d/streams=%d", conns, streams), sc)
}

// addHTTP2 adds small requests and bodies over HTTP/2.
func (all *scenarios) addHTTP2() {
	for _, h := range []struct {
		name, app      string
		tls            bool
		conns, streams int
		browser        bool
		bytes, window  int // of the body, of the client's windows
	}{
		{"h2c/keepalive", target.AppHTTP, false, 1, 1, false, 0, 0},
		{"*h2c/keepalive", target.AppHTTP, false, 64, 1, false, 0, 0},
		{"*h2c/keepalive", target.AppHTTP, false, 16, 32, false, 0, 0},
		{"h2c/keepalive", target.AppHTTP, false, 64, 8, false, 0, 0},
		{"h2c/browser", target.AppHTTP, false, 64, 1, true, 0, 0},
		{"h2c/browser", target.AppHTTP, false, 16, 32, true, 0, 0},
		{"h2/keepalive", target.AppHTTP, true, 1, 1, false, 0, 0},
		{"h2/keepalive", target.AppHTTP, true, 64, 1, false, 0, 0},
		{"h2/keepalive", target.AppHTTP, true, 16, 32, false, 0, 0},
		{"*h2/keepalive", target.AppHTTP, true, 64, 8, false, 0, 0},
		{"h2/browser", target.AppHTTP, true, 64, 1, true, 0, 0},
		{"h2/browser", target.AppHTTP, true, 16, 32, true, 0, 0},
		{"h2c/upload/1KiB", target.AppUpload, false, 64, 1, false, 1 << 10, 0},
		{"h2c/upload/1KiB", target.AppUpload, false, 16, 32, false, 1 << 10, 0},
		{"h2c/upload/64KiB", target.AppUpload, false, 64, 1, false, 64 << 10, 0},
		{"h2c/upload/64KiB", target.AppUpload, false, 16, 8, false, 64 << 10, 0},
		{"h2c/download/100KiB", target.AppJSON, false, 64, 1, false, 100 << 10, 0},
		{"h2c/download/100KiB", target.AppJSON, false, 16, 8, false, 100 << 10, 0},
		{"h2c/download/100KiB/window=64KiB", target.AppJSON, false, 64, 1, false, 100 << 10, 1<<16 - 1},
		{"h2c/download/100KiB/window=64KiB", target.AppJSON, false, 16, 8, false, 100 << 10, 1<<16 - 1},
		{"h2/download/100KiB", target.AppJSON, true, 16, 8, false, 100 << 10, 0},
	} {
		sc := ofHTTP2(h.app, h.tls, h.conns, h.streams)
		sc.job.Browser, sc.job.Window = h.browser, h.window
		if h.app == target.AppUpload {
			sc.job.Payload = h.bytes
		} else {
			sc.spec.JSONBytes = h.bytes
		}
		all.add(fmt.Sprintf("%s/conns=%d/streams=%d", h.name, h.conns, h.streams), sc)
	}
	open := ofHTTP2(target.AppHTTP, false, 64, 1)
	open.share = 0.5
	all.add("h2c/open/conns=64/streams=1/load=0.5", open)
}

// fileSizes are the downloads. Their names are the file names in the directory that the file server
// serves.
var fileSizes = []struct {
	name  string
	bytes int64
}{{"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"64MiB", 64 << 20}}

// addTransfers adds downloads of files, and uploads.
func (all *scenarios) addTransfers() {
	for _, f := range fileSizes {
		core := ""
		if f.name == "1MiB" {
			core = "*"
		}
		sc := ofHTTP(target.AppFiles, 8)
		sc.job.Path = "/" + f.name
		all.add(fmt.Sprintf("%sdownload/%s/conns=8", core, f.name), sc)
	}
	for _, f := range fileSizes[1:3] {
		sc := ofHTTP(target.AppUpload, 8)
		sc.job.Payload = int(f.bytes)
		all.add(fmt.Sprintf("upload/%s/conns=8", f.name), sc)
	}
}

// addProxies adds servers between the client and another server. Only the server in the middle is
// measured. In proxy/client it calls the other with the arm's client.
func (all *scenarios) addProxies() {
	echo := ofBytes(target.AppProxyTCP, load.KindEcho, 64, 128)
	echo.backend = &target.Spec{App: target.AppEcho}
	all.add("proxy/tcp/128B/conns=64", echo)
	files := ofHTTP(target.AppProxyTCP, 8)
	files.backend, files.job.Path = &target.Spec{App: target.AppFiles}, "/1MiB"
	all.add("proxy/tcp/1MiB/conns=8", files)
	sc := ofHTTP(target.AppProxyHTTP, 64)
	sc.backend = &target.Spec{App: target.AppHTTP}
	all.add("proxy/http/conns=64", sc)
	sc.spec.Client = true
	all.add("proxy/client/conns=64", sc)
	browser, long := sc, sc
	browser.job.Browser = true
	all.add("proxy/client/browser/conns=64", browser)
	long.backend = &target.Spec{App: target.AppJSON, JSONBytes: 100 << 10}
	all.add("proxy/client/100KiB/conns=64", long)
	all.add("proxy/client/https/conns=64", ofTLS(sc))
}

// addClients adds clients of HTTP and gRPC, with so many calls at a time. An operation is
// target.CallsPerRequest calls, or one with long bodies or many messages. The request that starts them
// is a small part of the cost. Calls of gRPC are unary, answered by many messages, or messages there
// and back on streams that stay open.
func (all *scenarios) addClients() {
	add := func(name string, calls int, spec, backend target.Spec) {
		spec.App = target.AppCaller
		sc := Scenario{spec: spec, backend: &backend, job: load.Job{Kind: load.KindHTTP, Conns: calls}}
		all.add(fmt.Sprintf("client/%s/calls=%d", name, calls), sc)
	}
	for _, n := range []int{1, 8, 64, 512} {
		add("http", n, target.Spec{}, target.Spec{App: target.AppHTTP})
	}
	if runtime.GOOS == "linux" { // see target.Spec.Hosts
		add("http/hosts=100", 64, target.Spec{CallHosts: 100}, target.Spec{App: target.AppHTTP, Hosts: 100})
	}
	add("https", 64, target.Spec{CallTLS: true}, target.Spec{App: target.AppHTTP, TLS: true})
	for _, h := range []struct {
		tls          bool
		conns, calls int
	}{{false, 1, 1}, {false, 1, 64}, {false, 16, 512}, {true, 1, 64}} {
		add(fmt.Sprintf("%s/conns=%d", name2(h.tls), h.conns), h.calls,
			target.Spec{CallTLS: h.tls, CallHTTP2: h.conns}, target.Spec{App: target.AppHTTP, TLS: h.tls, HTTP2: true})
	}
	for _, g := range []struct {
		name, kind                string
		bytes, conns, calls, each int
	}{
		{"128B", "", 128, 1, 1, 0},
		{"128B", "", 128, 1, 64, 0},
		{"128B", "", 128, 64, 64, 0},
		{"1MiB", "", 1 << 20, 8, 8, 1},
		{"list/1000x128B", target.CallList, 128, 1, 1, 1},
		{"list/1000x128B", target.CallList, 128, 8, 8, 1},
		{"pingpong/128B", target.CallPingPong, 128, 1, 1, 0},
		{"pingpong/128B", target.CallPingPong, 128, 1, 64, 0},
		{"pingpong/128B", target.CallPingPong, 128, 64, 64, 0},
	} {
		spec := target.Spec{CallConns: g.conns, CallBytes: g.bytes, CallKind: g.kind, Calls: g.each}
		add(fmt.Sprintf("grpc/%s/conns=%d", g.name, g.conns), g.calls, spec, target.Spec{App: target.AppGRPC})
	}
	for _, app := range []string{target.AppUpload, target.AppMirror} { // bodies one way, and both ways
		add(app+"/1KiB", 64, target.Spec{CallBytes: 1 << 10}, target.Spec{App: app})
		add(app+"/1MiB", 8, target.Spec{CallBytes: 1 << 20, Calls: 1}, target.Spec{App: app})
	}
	add("download/4KiB", 64, target.Spec{CallPath: "/4KiB"}, target.Spec{App: target.AppFiles})
	add("download/1MiB", 8, target.Spec{CallPath: "/1MiB", Calls: 1}, target.Spec{App: target.AppFiles})
}

// addComputing adds requests to a server whose other goroutines keep every processor busy. They show how
// long a request waits for its turn.
func (all *scenarios) addComputing() {
	one, every := ofHTTP(target.AppHTTP, 16), ofHTTP(target.AppHTTP, 16)
	one.spec.Procs = 1
	short, long := ofBytes(target.AppEcho, load.KindEcho, 16, 128), ofBytes(target.AppEcho, load.KindEcho, 16, 16<<10)
	for _, c := range []struct {
		name string
		sc   Scenario
	}{{"http/conns=16/procs=1", one}, {"http/conns=16", every}, {"echo/128B/conns=16", short}, {"echo/16KiB/conns=16", long}} {
		c.sc.spec.Computing = true
		all.add("computing/"+c.name, c.sc)
	}
}

// addIdle adds connections on which nothing happens: the memory of these connections, and what they cost
// the busy connections.
func (all *scenarios) addIdle(idle int) {
	few := max(1, idle/10) // a gRPC client's connection is expensive for the client
	web := ofHTTP(target.AppHTTP, 1)
	all.add(fmt.Sprintf("*idle/http/conns=%d", idle), idling(web, idle))
	wrapped := ofTLS(web)
	all.add(fmt.Sprintf("idle/https/conns=%d", idle), idling(wrapped, idle))
	wrapped.spec.Wrapped = true
	all.add(fmt.Sprintf("idle/https-listener/conns=%d", idle), idling(wrapped, idle))
	all.add(fmt.Sprintf("idle/echo/conns=%d", idle), idling(ofBytes(target.AppEcho, load.KindEcho, 1, 128), idle))
	calls := ofBytes(target.AppGRPC, load.KindGRPCUnary, 1, 0)
	all.add(fmt.Sprintf("idle/grpc/conns=%d", few), idling(calls, few))
	all.add(fmt.Sprintf("idle/grpc-tls/conns=%d", few), idling(ofTLS(calls), few))
	busy := ofHTTP(target.AppHTTP, 64)
	busy.idle = idle + idle/2
	all.add(fmt.Sprintf("*idle+busy/http/idle=%d/conns=64", busy.idle), busy)
	for _, tls := range []bool{false, true} {
		sc := ofHTTP2(target.AppHTTP, tls, 1, 1)
		core := "*"
		if tls {
			core = ""
		}
		all.add(fmt.Sprintf("%sidle/%s/conns=%d", core, name2(tls), idle), idling(sc, idle))
		sc.job.Browser = true
		all.add(fmt.Sprintf("idle/%s/browser/conns=%d", name2(tls), idle), idling(sc, idle))
	}
}

// addIdleClients adds connections of a client on which nothing happens: the client's memory. Each
// connection of gRPC has a client of its own.
func (all *scenarios) addIdleClients(idle int) {
	for _, tls := range []bool{false, true} {
		sc := ofHTTP(target.AppCaller, 1)
		sc.spec.CallTLS, sc.spec.CallIdle, sc.backend = tls, idle, &target.Spec{App: target.AppHTTP, TLS: tls}
		all.add(fmt.Sprintf("idle/client/%s/conns=%d", name1(tls), idle), idling(sc, idle))
	}
	few := max(1, idle/10)
	sc := ofHTTP(target.AppCaller, 1)
	sc.spec.CallConns, sc.spec.CallIdle, sc.backend = 1, few, &target.Spec{App: target.AppGRPC}
	sc.settles = 3 // the goroutines of a client's pool end after two seconds
	all.add(fmt.Sprintf("idle/client/grpc/conns=%d", few), idling(sc, few))
}

const (
	// wakingPause is how long a connection of http/unpark is left alone between two requests.
	wakingPause = time.Second

	// wakingMin is the minimum number of its connections. With this many random arrivals, a turn takes
	// the pause to within a tenth.
	wakingMin = 100
)

// addWaiting adds requests whose handlers wait, as long polls do, whose memory is measured; requests on
// connections that were idle for a while, which show what waking up costs; and many connections with a
// request now and then.
func (all *scenarios) addWaiting(idle int) {
	n := max(1, idle*2/5) // 4,000 by default
	for _, tls := range []bool{false, true} {
		sc := ofHTTP(target.AppWaiting, 1)
		if tls {
			sc = ofTLS(sc)
		}
		sc.waiting = true
		all.add(fmt.Sprintf("%s/waiting/conns=%d", name1(tls), n), idling(sc, n))
	}
	streams := max(1, idle/100) // 100 by default
	sc := idling(ofHTTP2(target.AppWaiting, false, 1, 1), 10*streams)
	sc.waiting, sc.streams = true, streams
	all.add(fmt.Sprintf("h2c/waiting/conns=10/streams=%d", streams), sc)

	n = max(wakingMin, idle/5) // 2,000 by default, which are 2,000 requests a second
	sc = ofHTTP(target.AppHTTP, n)
	sc.pause = wakingPause
	all.add(fmt.Sprintf("http/unpark/conns=%d", n), sc)
	n = max(wakingMin, idle*2/5) // 4,000 by default, which are 10,000 requests a second
	sc = ofHTTP(target.AppHTTP, n)
	sc.pauseMin, sc.pauseMax = 200*time.Millisecond, 600*time.Millisecond
	all.add(fmt.Sprintf("http/sparse/conns=%d", n), sc)
}

// addScaling adds small requests to servers with 1, 2, 4, … and all n processors, with the same number
// of connections for each processor.
func (all *scenarios) addScaling(n int) {
	for _, procs := range scaleSteps(n) {
		sc := ofHTTP(target.AppHTTP, 64*procs)
		sc.procs = procs
		all.add(fmt.Sprintf("*scale/http/procs=%d", procs), sc)
	}
	for _, procs := range scaleSteps(n) {
		sc := ofBytes(target.AppEcho, load.KindEcho, 64*procs, 128)
		sc.procs = procs
		all.add(fmt.Sprintf("*scale/echo/procs=%d", procs), sc)
	}
}

// scaleSteps returns the powers of two below n, and n.
func scaleSteps(n int) (steps []int) {
	for procs := 1; procs < n; procs *= 2 {
		steps = append(steps, procs)
	}
	return append(steps, n)
}
