package scenario

import (
	"fmt"
	"strings"
	"time"
)

type list []Scenario

// add adds a scenario. A name that begins with a * is one of the core set.
func (all *list) add(name string, s Scenario) {
	s.Name, s.Core = strings.CutPrefix(name, "*")
	*all = append(*all, s)
}

// conns adds a scenario for each number of connections, with its names behind. HTTP/2 has streams, and
// gRPC callers.
func (all *list) conns(name string, s Scenario, numbers ...int) {
	for _, s.Conns = range numbers {
		full := fmt.Sprintf("%s/conns=%d", name, s.Conns)
		switch {
		case s.HTTP2:
			full += fmt.Sprintf("/streams=%d", max(1, s.Streams))
		case s.Callers > 0:
			full += fmt.Sprintf("/callers=%d", s.Callers)
		}
		if s.Share > 0 {
			full += fmt.Sprintf("/load=%v", s.Share)
		}
		all.add(full, s)
	}
}

// List returns all scenarios in the order in which they run. idle is how many connections the scenarios
// about idle connections have, and procs how many processors this process may use.
func List(idle, procs int) []Scenario {
	var all list
	all.addHTTP()
	all.addBytes(idle)
	all.addGRPC(idle)
	all.addHTTP2()
	all.addProxies()
	all.addClients()
	all.addComputing()
	all.addIdle(idle)
	all.addWaiting(idle)
	all.addScaling(procs)
	return all
}

// addHTTP adds small requests on connections that stay open, and requests that are less plain; answers
// in JSON, of which one is longer than net/http buffers and goes out in chunks; handlers that keep the
// processors busy, below and at saturation; files, and uploads.
func (all *list) addHTTP() {
	all.conns("*http/keepalive", Scenario{App: AppHTTP}, 1, 8, 64, 512)
	all.conns("*http/timeouts", Scenario{App: AppHTTP, Timeouts: true}, 64)
	all.conns("*http/open", Scenario{App: AppHTTP, Share: 0.5}, 64)
	all.conns("*http/browser", Scenario{App: AppHTTP, Browser: true}, 64)
	all.conns("http/browser", Scenario{App: AppHTTP, Browser: true}, 512)
	all.conns("https/keepalive", Scenario{App: AppHTTP, TLS: true}, 8, 64, 512)
	all.conns("http/json/1KiB", Scenario{App: AppJSON, Answer: 1 << 10}, 64)
	all.conns("http/json/32KiB", Scenario{App: AppJSON, Answer: 32 << 10}, 64)
	all.conns("*http/close", Scenario{App: AppHTTP, Close: true}, 64)
	all.conns("http/odd/chunked", Scenario{App: AppUpload, Payload: 1 << 10, Chunked: true}, 64)
	all.conns("http/odd/expect", Scenario{App: AppUpload, Payload: 1 << 10, Field: "Expect: 100-continue"}, 64)
	all.conns("http/odd/http10", Scenario{App: AppHTTP, HTTP10: true, Field: "Connection: keep-alive"}, 64)
	all.conns("http/odd/http10-close", Scenario{App: AppHTTP, HTTP10: true, Close: true}, 64)
	all.conns("http/odd/pragma", Scenario{App: AppHTTP, Field: "Pragma: no-cache"}, 64)
	all.conns("http/odd/upgrade", Scenario{App: AppUpgrade, Close: true}, 64)
	for _, d := range []time.Duration{100 * time.Microsecond, time.Millisecond} {
		name := fmt.Sprintf("cpu/%v", d)
		if d == time.Millisecond {
			name = "*" + name
		}
		all.add(name+"/conns=64/saturated", Scenario{App: AppSpin, Spin: d, Conns: 64})
		all.conns(name, Scenario{App: AppSpin, Spin: d, Share: 0.6}, 64)
	}
	all.conns("download/4KiB", Scenario{App: AppFiles, Path: "/4KiB"}, 8)
	all.conns("download/64KiB", Scenario{App: AppFiles, Path: "/64KiB"}, 8)
	all.conns("*download/1MiB", Scenario{App: AppFiles, Path: "/1MiB"}, 8)
	all.conns("upload/64KiB", Scenario{App: AppUpload, Payload: 64 << 10}, 8)
	all.conns("upload/1MiB", Scenario{App: AppUpload, Payload: 1 << 20}, 8)
}

// Files are the downloads, by their names in the directory that the file servers serve.
var Files = map[string]int{"4KiB": 4 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20}

// addBytes adds bytes there and back, a message to many connections, pipelined commands, and answers in
// many small slices, as of a message and its parts, and of a message broker's flush. An operation is a
// message to all, or 16 commands.
func (all *list) addBytes(idle int) {
	short := Scenario{App: AppEcho, Payload: 128}
	all.conns("*echo/128B", short, 1)
	all.conns("echo/128B", short, 16)
	all.conns("*echo/128B", short, 256)
	all.conns("echo/16KiB", Scenario{App: AppEcho, Payload: 16 << 10}, 16, 256)
	all.add(fmt.Sprintf("broadcast/100B/conns=%d", max(2, idle/10)), Scenario{App: AppBroadcast, Payload: 100, Conns: max(2, idle/10), Callers: 1})
	all.conns("resp/64B/pipeline=16", Scenario{App: AppRESP, Payload: 64, Pipeline: 16}, 64)
	all.conns("buffers/16x256B", Scenario{App: AppBuffers, Slices: 16, Answer: 256}, 64)
	all.conns("buffers/1024x512B", Scenario{App: AppBuffers, Slices: 1024, Answer: 512}, 8)
}

// addGRPC adds unary calls, small and large, messages there and back on streams that stay open, and
// streams of the server whose handlers wait, whose memory is measured. The number of callers is the
// total, not the number per connection.
func (all *list) addGRPC(idle int) {
	call := func(payload, callers int) Scenario { return Scenario{App: AppGRPC, Payload: payload, Callers: callers} }
	all.conns("*grpc/unary/128B", call(128, 1), 1)
	all.conns("grpc/unary/128B", call(128, 64), 1)
	all.conns("*grpc/unary/128B", call(128, 64), 64)
	all.conns("grpc/unary/128B", call(128, 256), 64)
	all.conns("grpc/unary/1MiB", call(1<<20, 8), 8)
	all.conns("grpc/stream/128B", Scenario{App: AppGRPC, Payload: 128, Stream: true}, 1)
	all.conns("*grpc/stream/128B", Scenario{App: AppGRPC, Payload: 128, Stream: true}, 64)
	conns := max(1, idle/100)
	streams := max(1, idle/conns) // 100 by default
	all.add(fmt.Sprintf("grpc/waiting/conns=%d/streams=%d", conns, streams),
		Scenario{App: AppGRPC, Conns: 1, Memory: true, Waiting: true, Idle: conns * streams, Streams: streams})
}

func (all *list) addHTTP2() {
	for _, h := range []struct {
		name           string
		conns, streams int
		s              Scenario
	}{
		{"h2c/keepalive", 1, 1, Scenario{App: AppHTTP}},
		{"*h2c/keepalive", 64, 1, Scenario{App: AppHTTP}},
		{"*h2c/keepalive", 16, 32, Scenario{App: AppHTTP}},
		{"h2c/keepalive", 64, 8, Scenario{App: AppHTTP}},
		{"h2c/browser", 64, 1, Scenario{App: AppHTTP, Browser: true}},
		{"h2c/browser", 16, 32, Scenario{App: AppHTTP, Browser: true}},
		{"h2/keepalive", 1, 1, Scenario{App: AppHTTP, TLS: true}},
		{"h2/keepalive", 64, 1, Scenario{App: AppHTTP, TLS: true}},
		{"*h2/keepalive", 64, 8, Scenario{App: AppHTTP, TLS: true}},
		{"h2c/upload/1KiB", 64, 1, Scenario{App: AppUpload, Payload: 1 << 10}},
		{"h2c/upload/64KiB", 64, 1, Scenario{App: AppUpload, Payload: 64 << 10}},
		{"h2c/upload/64KiB", 16, 8, Scenario{App: AppUpload, Payload: 64 << 10}},
		{"h2c/download/100KiB", 64, 1, Scenario{App: AppJSON, Answer: 100 << 10}},
		{"h2c/download/100KiB", 16, 8, Scenario{App: AppJSON, Answer: 100 << 10}},
		{"h2c/download/100KiB/window=64KiB", 16, 8, Scenario{App: AppJSON, Answer: 100 << 10, Window: 1<<16 - 1}},
	} {
		h.s.HTTP2, h.s.Streams = true, h.streams
		all.conns(h.name, h.s, h.conns)
	}
}

// addProxies adds servers between the client and another server. Only the server in the middle is
// measured. In proxy/client it calls the other with the arm's client.
func (all *list) addProxies() {
	hello := Scenario{App: AppHTTP}
	all.conns("proxy/tcp/128B", Scenario{App: AppProxyTCP, Payload: 128, Backend: &Scenario{App: AppEcho}}, 64)
	all.conns("proxy/tcp/1MiB", Scenario{App: AppProxyTCP, Path: "/1MiB", Backend: &Scenario{App: AppFiles}}, 8)
	all.conns("proxy/http", Scenario{App: AppProxyHTTP, Backend: &hello}, 64)
	all.conns("proxy/client", Scenario{App: AppProxyHTTP, Own: true, Backend: &hello}, 64)
	all.conns("proxy/client/browser", Scenario{App: AppProxyHTTP, Own: true, Backend: &hello, Browser: true}, 64)
	all.conns("proxy/client/100KiB", Scenario{App: AppProxyHTTP, Own: true, Backend: &Scenario{App: AppJSON, Answer: 100 << 10}}, 64)
	all.conns("proxy/client/https", Scenario{App: AppProxyHTTP, Own: true, Backend: &hello, TLS: true}, 64)
	upload := Scenario{App: AppUpload}
	all.conns("proxy/client/chunked", Scenario{App: AppProxyHTTP, Own: true, Backend: &upload, Payload: 1 << 10, Chunked: true}, 64)
}

// addClients adds clients of HTTP and gRPC, with so many calls at a time. An operation is
// CallsPerRequest calls, or one with long bodies or many messages. The request that starts them is a
// small part of the cost. Calls of gRPC are unary, answered by many messages, or messages there and
// back on streams that stay open.
func (all *list) addClients() {
	add := func(name string, backend Scenario, atOnce ...int) {
		for _, n := range atOnce {
			all.add(fmt.Sprintf("client/%s/calls=%d", name, n), Scenario{App: AppCaller, Conns: n, Backend: &backend})
		}
	}
	add("http", Scenario{App: AppHTTP}, 1, 8, 64, 512)
	add("http/hosts=100", Scenario{App: AppHTTP, Hosts: 100}, 64)
	add("http/dial", Scenario{App: AppHTTP, Dial: true}, 64)
	add("http/unix", Scenario{App: AppHTTP, Unix: true}, 64)
	add("https", Scenario{App: AppHTTP, TLS: true}, 64)
	add("h2c/conns=1", Scenario{App: AppHTTP, HTTP2: true, Conns: 1}, 1, 64)
	add("h2c/conns=16", Scenario{App: AppHTTP, HTTP2: true, Conns: 16}, 512)
	add("h2/conns=1", Scenario{App: AppHTTP, HTTP2: true, TLS: true, Conns: 1}, 64)
	add("grpc/128B/conns=1", Scenario{App: AppGRPC, Conns: 1, Payload: 128}, 1, 64)
	add("grpc/128B/conns=64", Scenario{App: AppGRPC, Conns: 64, Payload: 128}, 64)
	add("grpc/1MiB/conns=8", Scenario{App: AppGRPC, Conns: 8, Payload: 1 << 20, Each: 1}, 8)
	for _, n := range []int{1, 8} {
		add(fmt.Sprintf("grpc/list/1000x128B/conns=%d", n), Scenario{App: AppGRPC, Conns: n, List: true, Payload: 128, Each: 1}, n)
	}
	add("grpc/pingpong/128B/conns=1", Scenario{App: AppGRPC, Conns: 1, Stream: true, Payload: 128}, 1, 64)
	add("grpc/pingpong/128B/conns=64", Scenario{App: AppGRPC, Conns: 64, Stream: true, Payload: 128}, 64)
	for _, app := range []string{AppUpload, AppMirror} { // bodies one way, and both ways
		add(app+"/1KiB", Scenario{App: app, Payload: 1 << 10}, 64)
		add(app+"/1MiB", Scenario{App: app, Payload: 1 << 20, Each: 1}, 8)
	}
	add("chunked/1KiB", Scenario{App: AppUpload, Payload: 1 << 10, Chunked: true}, 64)
	add("download/4KiB", Scenario{App: AppFiles, Path: "/4KiB"}, 64)
	add("download/1MiB", Scenario{App: AppFiles, Path: "/1MiB", Each: 1}, 8)
}

// addComputing adds requests to a server whose other goroutines keep every processor busy. They show
// how long a request waits for its turn.
func (all *list) addComputing() {
	all.add("computing/http/conns=16/procs=1", Scenario{App: AppHTTP, Computing: true, MaxProcs: 1, Conns: 16})
	all.conns("computing/http", Scenario{App: AppHTTP, Computing: true}, 16)
	all.conns("computing/echo/128B", Scenario{App: AppEcho, Computing: true, Payload: 128}, 16)
	all.conns("computing/echo/16KiB", Scenario{App: AppEcho, Computing: true, Payload: 16 << 10}, 16)
}

// addIdle adds connections on which nothing happens: their memory, which one more connection has warmed
// up for, and what they cost the busy connections. A gRPC client's connection is expensive for the
// client, so there are fewer.
func (all *list) addIdle(idle int) {
	add := func(name string, n int, s Scenario) {
		s.Conns, s.Idle, s.Memory = 1, n, true
		all.add(fmt.Sprintf("%s/conns=%d", name, n), s)
	}
	few := max(1, idle/10)
	add("*idle/http", idle, Scenario{App: AppHTTP})
	add("idle/https", idle, Scenario{App: AppHTTP, TLS: true})
	add("idle/echo", idle, Scenario{App: AppEcho, Payload: 128})
	add("idle/grpc", few, Scenario{App: AppGRPC})
	add("*idle/h2c", idle, Scenario{App: AppHTTP, HTTP2: true})
	add("idle/h2c/browser", idle, Scenario{App: AppHTTP, HTTP2: true, Browser: true})
	add("idle/h2", idle, Scenario{App: AppHTTP, HTTP2: true, TLS: true})
	many := idle + idle/2
	all.add(fmt.Sprintf("*idle+busy/http/idle=%d/conns=64", many), Scenario{App: AppHTTP, Idle: many, Conns: 64})
}

// pausingMin is the least number of connections that pause: with fewer, the rate depends on chance.
const pausingMin = 100

// addWaiting adds requests whose handlers wait, as long polls do, whose memory is measured; requests on
// connections that were idle for a second, which show what waking up costs; and many connections with a
// request now and then.
func (all *list) addWaiting(idle int) {
	n := max(1, idle*2/5) // 4,000 by default
	s := Scenario{App: AppWaiting, Conns: 1, Memory: true, Waiting: true, Idle: n}
	all.add(fmt.Sprintf("http/waiting/conns=%d", n), s)
	s.TLS = true
	all.add(fmt.Sprintf("https/waiting/conns=%d", n), s)
	streams := max(1, idle/100) // 100 by default
	all.add(fmt.Sprintf("h2c/waiting/conns=10/streams=%d", streams),
		Scenario{App: AppWaiting, HTTP2: true, Conns: 1, Memory: true, Waiting: true, Idle: 10 * streams, Streams: streams})
	// 2,000 by default, which are 2,000 requests a second, and 4,000, which are 10,000.
	all.conns("http/unpark", Scenario{App: AppHTTP, PauseMin: time.Second, PauseMax: time.Second}, max(pausingMin, idle/5))
	all.conns("http/sparse", Scenario{App: AppHTTP, PauseMin: 200 * time.Millisecond, PauseMax: 600 * time.Millisecond}, max(pausingMin, idle*2/5))
}

// addScaling adds small requests to servers with 1, 2, 4, … and all processors, with the same number of
// connections for each processor.
func (all *list) addScaling(procs int) {
	for _, s := range []Scenario{{App: AppHTTP}, {App: AppEcho, Payload: 128}} {
		for _, s.Procs = range ScaleSteps(procs) {
			s.Conns = 64 * s.Procs
			all.add(fmt.Sprintf("*scale/%s/procs=%d", s.App, s.Procs), s)
		}
	}
}

// ScaleSteps returns the powers of two below n, and n.
func ScaleSteps(n int) (steps []int) {
	for procs := 1; procs < n; procs *= 2 {
		steps = append(steps, procs)
	}
	return append(steps, n)
}
