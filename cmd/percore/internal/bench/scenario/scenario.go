// Package scenario says what the benchmark measures: all its processes read the same description.
package scenario

import (
	"fmt"
	"time"
)

// Scenario is one thing to measure: a server, its load, and how it is measured.
type Scenario struct {
	Name string // path-like, as benchstat reads it: "http/keepalive/conns=64"
	Core bool   // part of the core set, which runs by default

	// The server.
	App       string    // one of the App constants
	TLS       bool      // servers over HTTP only
	HTTP2     bool      // the load speaks HTTP/2, in clear with prior knowledge
	Timeouts  bool      // set the four timeouts of http.Server
	MaxProcs  int       // its GOMAXPROCS; 0: Go's default
	Computing bool      // goroutines that never wait, one per processor, run beside it
	Answer    int       // bytes of AppJSON's answer, about; of a slice of AppBuffers
	Slices    int       // of AppBuffers' answer
	Unix      bool      // it listens at a unix socket
	Hosts     int       // if not 0, it listens at so many addresses with the same port: 127.0.0.1, 127.0.0.2, …
	Backend   *Scenario // a second server, on package net, which this one talks to; its load says how
	Own       bool      // AppProxyHTTP only: the arm's client calls the backend; else http.Transport does

	// Spin is how much CPU time a request of AppSpin takes, and SpinIterations the same in turns of its
	// loop: the harness finds out once, so every arm does the same work even if the clock speed drifts.
	Spin           time.Duration
	SpinIterations int64

	// The load.
	Addr     string // where it goes: it is known beforehand if a program of others is the server
	Tool     string // a command in the place of the load generator; such programs only
	Conns    int
	Callers  int    // concurrent callers of all connections, gRPC and broadcasts only; 0: one for each
	Streams  int    // requests open on each connection, HTTP/2 and waiting ones of gRPC; 0: one
	Payload  int    // bytes of a message, or of a request's body
	Pipeline int    // commands sent together, AppRESP only
	Path     string // of HTTP requests, "" means "/"; AppMethod: the method
	Message  []byte // AppMethod only: protocol buffers
	Stream   bool   // AppGRPC only: messages there and back on a stream that stays open
	Browser  bool   // HTTP only: with BrowserHeader
	Close    bool   // HTTP/1 only: a connection for each request
	HTTP10   bool   // HTTP/1 only: the version of requests is HTTP/1.0
	Chunked  bool   // HTTP/1 only: the body goes in one chunk
	Field    string // HTTP/1 only: another line of the header
	Window   int    // HTTP/2 only: how many bytes of answers the server may send ahead; 0: 1 GiB

	// The calls of AppCaller to a Backend with these, one after the other. Its Conns are those of a client
	// over HTTP/2 or of gRPC, which uses them in turn.
	Each int  // calls for a request; 0: CallsPerRequest
	List bool // AppGRPC only: they are answered by ListMessages messages
	Dial bool // the client's DialContext is a function of the program's own, as it is with Unix

	// How it is measured: in a closed loop, unless one of these makes it an open loop.
	Share              float64       // of the rate that the last arm reaches in a closed loop
	PauseMin, PauseMax time.Duration // each connection pauses for a random time between them

	Idle    int  // connections, or requests that wait, in addition to Conns
	Memory  bool // the memory of these is measured, not a window
	Both    bool // with Memory: then a window without them is measured, too
	Waiting bool // with Memory: each has a request whose handler waits; on each connection Streams of them
	Procs   int  // processors of the server; the load has the others; 0: the run decides
}

// CallsPerRequest is how many calls of a client AppCaller makes for a request, so that the request
// itself is a small part of the cost.
const CallsPerRequest = 50

// The servers.
const (
	AppHTTP      = "http"       // net/http: a short text
	AppJSON      = "json"       // net/http: a JSON document of Answer bytes
	AppWaiting   = "waiting"    // net/http: the short text; on WaitPath, once it is released
	AppSpin      = "spin"       // net/http: burns Spin, then sends the short text
	AppFiles     = "files"      // net/http: http.FileServer on the harness's files
	AppUpload    = "upload"     // net/http: reads the body, then sends the short text
	AppMirror    = "mirror"     // net/http: sends the body back
	AppUpgrade   = "upgrade"    // net/http: switches to another protocol, as a WebSocket's server does, and closes
	AppProxyHTTP = "proxy-http" // net/http: httputil.ReverseProxy to the backend
	AppCaller    = "caller"     // net/http: calls the backend, then sends the short text
	AppProxyTCP  = "proxy-tcp"  // io.Copy in both directions between client and backend
	AppEcho      = "echo"       // sends bytes back as they come
	AppBroadcast = "broadcast"  // sends bytes to all connections as they come; a Greeting to its sender alone
	AppRESP      = "resp"       // a key-value store
	AppBuffers   = "buffers"    // for each byte Slices slices of Answer bytes, with net.Buffers.WriteTo
	AppGRPC      = "grpc"       // the Echo service
	AppMethod    = "method"     // none of the benchmark's: a method of gRPC of another program
)

// WaitPath is the path on which AppWaiting waits.
const WaitPath = "/wait"

// Greeting is the length of a message to AppBroadcast that is sent back to its sender alone. So a
// client knows that its connection gets the others.
const Greeting = 1

// The methods of the Echo service, and how many messages EchoList answers with.
const (
	EchoUnary  = "/percore.bench.Echo/Unary"
	EchoStream = "/percore.bench.Echo/Stream"
	EchoList   = "/percore.bench.Echo/List"
	EchoWatch  = "/percore.bench.Echo/Watch"

	ListMessages = 1000
)

// BrowserHeader has the header fields that a browser sends besides Host, one per line.
var BrowserHeader = []string{
	"Connection: keep-alive",
	"Cache-Control: max-age=0",
	`sec-ch-ua: "Chromium";v="146", "Not-A.Brand";v="24"`,
	"sec-ch-ua-mobile: ?0",
	"Upgrade-Insecure-Requests: 1",
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/146.0.0.0 Safari/537.36",
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
	"Accept-Encoding: gzip, deflate, br, zstd",
	"Accept-Language: en-GB,en;q=0.9",
	"Cookie: session=0123456789abcdef; theme=dark",
}

// OverHTTP reports whether the server is an http.Server.
func (s *Scenario) OverHTTP() bool {
	switch s.App {
	case AppProxyTCP, AppEcho, AppBroadcast, AppRESP, AppBuffers, AppGRPC, AppMethod:
		return false
	}
	return true
}

// Open reports whether the load is an open loop.
func (s *Scenario) Open() bool { return s.Share > 0 || s.PauseMax > 0 }

// Rate returns the operations per second of an open loop that doesn't depend on the arms, or else 0.
func (s *Scenario) Rate() float64 {
	if s.PauseMax == 0 {
		return 0
	}
	return float64(s.Conns) / ((s.PauseMin + s.PauseMax) / 2).Seconds()
}

// Workers returns how many operations may be open at once.
func (s *Scenario) Workers() int {
	if s.Callers > 0 {
		return s.Callers
	}
	return s.Conns
}

// MostConns returns how many connections are open at once.
func (s *Scenario) MostConns() int { return s.Conns + s.IdleConns() }

// IdleConns returns how many connections the idle requests have.
func (s *Scenario) IdleConns() int {
	if s.Waiting {
		return s.Idle / max(1, s.Streams)
	}
	return s.Idle
}

// An Engine is what a server runs on, and in which way.
type Engine struct {
	Percore bool   `json:"percore,omitempty"` // its listener is percore's
	Kind    string `json:"kind,omitempty"`    // "" or one of the constants below
	Detach  bool   `json:"detach,omitempty"`  // handlers that wait detach their answers
}

// The kinds of Engines. Where the scenario is about a client it is of that kind, too. FastPath are
// httpadapter and grpcadapter.Wrap, with NewTransport and NewClient; NewServer is grpcadapter's. Nginx
// and Nghttpd run where they are installed.
const (
	FastPath  = "fastpath"
	NewServer = "newserver"
	Reactor   = "reactor"
	FastHTTP  = "fasthttp"
	Nginx     = "nginx"
	Nghttpd   = "nghttpd"
	Gnet      = "gnet"
	Nbio      = "nbio"
	Netpoll   = "netpoll"
)

// engines are all Engines, by the names of their arms.
var engines = map[string]Engine{
	"net":                      {},
	"percore":                  {Percore: true},
	"percore+fastpath":         {Percore: true, Kind: FastPath},
	"percore+fastpath+detach":  {Percore: true, Kind: FastPath, Detach: true},
	"percore+newserver":        {Percore: true, Kind: NewServer},
	"percore+newserver+detach": {Percore: true, Kind: NewServer, Detach: true},
	"percore+reactor":          {Percore: true, Kind: Reactor},
	"percore+fasthttp":         {Percore: true, Kind: FastHTTP},
	"fasthttp":                 {Kind: FastHTTP},
	"nginx":                    {Kind: Nginx},
	"nghttpd":                  {Kind: Nghttpd},
	"gnet":                     {Kind: Gnet},
	"nbio":                     {Kind: Nbio},
	"netpoll":                  {Kind: Netpoll},
}

// EngineNamed returns the Engine of an arm.
func EngineNamed(arm string) (Engine, error) {
	e, ok := engines[arm]
	if !ok {
		return e, fmt.Errorf("unknown arm %q: percore bench -h lists them", arm)
	}
	return e, nil
}

// Installed reports whether the server is a program of others, which must be installed.
func (e Engine) Installed() bool { return e.Kind == Nginx || e.Kind == Nghttpd }

// Peer reports whether the program percore-peers runs the server.
func (e Engine) Peer() bool { return e.Kind == Gnet || e.Kind == Nbio || e.Kind == Netpoll }

// Serves reports whether there is such a server, or client.
func (e Engine) Serves(s *Scenario) bool {
	plain := !s.TLS && !s.HTTP2 && !s.HTTP10 && s.Field == ""
	if e.Detach && !s.Waiting {
		return false
	}
	switch e.Kind {
	case FastPath:
		return s.OverHTTP() || s.App == AppGRPC
	case NewServer:
		return s.App == AppGRPC
	case FastHTTP:
		return s.App == AppHTTP && plain || s.App == AppCaller && s.Backend.App != AppGRPC && !s.Backend.HTTP2 && s.Backend.Hosts == 0
	case Nginx:
		return s.App == AppHTTP && plain && !s.Computing && !s.Timeouts || s.App == AppProxyHTTP
	case Nghttpd:
		return s.HTTP2 && (s.App == AppHTTP || s.App == AppJSON || s.App == AppUpload)
	case Reactor, Gnet, Nbio, Netpoll:
		return s.App == AppEcho || s.App == AppBroadcast || s.App == AppRESP
	}
	return true
}

// None stands for a request or a reply without anything in it.
type None struct{}

// Order is a server to start.
type Order struct {
	Scenario
	Engine  Engine
	Behind  string // the address of the backend
	FileDir string // the files of AppFiles
}

// Started is what a server says when it has started.
type Started struct {
	Addr       string
	GOMAXPROCS int
}

// Usage is a snapshot of what a server's process has consumed since it started.
type Usage struct {
	User       time.Duration
	System     time.Duration
	Switches   int64  // context switches, voluntary or not
	Mallocs    uint64 // heap objects allocated
	AllocBytes uint64 // heap bytes allocated
	FastPath   uint64 // requests that httpadapter has served over HTTP/1
}

// CPU returns the CPU time used, in user space and in the kernel together.
func (u Usage) CPU() time.Duration { return u.User + u.System }

// Memory is the lasting memory of a server's process: after a garbage collection, and after it has
// returned free memory to the kernel.
type Memory struct {
	Resident   int64 // bytes in RAM, Rss of /proc/self/smaps_rollup
	Heap       int64 // bytes of live heap objects
	Stack      int64 // bytes of goroutine stacks
	Goroutines int64
}

// Phase is one run of a load.
type Phase struct {
	Duration time.Duration
	Grace    time.Duration // how much longer than Duration it may take before the server counts as hung
	Rate     float64       // operations to begin per second, in an open loop
	Seed     uint64        // of the open loop's schedule: equal seeds give equal schedules
}

// Result holds a phase's measurements. Latencies are HDR histograms in nanoseconds, V2 compressed,
// base64, and quantiles of them.
type Result struct {
	Ops       int64
	Elapsed   time.Duration
	CPU       time.Duration // of the load's process
	Latency   string
	Quantiles map[string]time.Duration // by the names of their metrics
	LateP99   time.Duration            // after an open loop: how late the generator itself was, 99th percentile
}
