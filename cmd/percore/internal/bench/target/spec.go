package target

import "time"

// The requests that a target process answers.
const (
	OpStart        = "start"         // Spec → Started
	OpUsage        = "usage"         // nothing → Usage
	OpMemory       = "memory"        // nothing → Memory
	OpAwait        = "await"         // Waiting → nothing, once so many handlers wait; AppWaiting and AppGRPC only
	OpHold         = "hold"          // Held → Reused; AppCaller with Spec.CallIdle only
	OpRelease      = "release"       // nothing → nothing; ends the waits; AppWaiting and AppGRPC only
	OpProfileStart = "profile-start" // Profile → nothing
	OpProfileStop  = "profile-stop"  // nothing → nothing
)

// Spec says which server to run, and on which engine.
type Spec struct {
	App    string `json:"app"` // one of the App constants
	Engine Engine `json:"engine"`

	// SpinIterations is the work of one request of AppSpin, in turns of Spin's loop. The harness
	// calibrates it once for all arms. So every arm does the same work even if the clock speed
	// drifts between them.
	SpinIterations int64 `json:"spinIterations,omitempty"`

	// Slices and SliceBytes describe the answer of AppBuffers: the number and the length of the
	// slices in a net.Buffers.
	Slices     int `json:"slices,omitempty"`
	SliceBytes int `json:"sliceBytes,omitempty"`

	JSONBytes int `json:"jsonBytes,omitempty"` // approximate length of AppJSON's answer

	// Procs is the server's GOMAXPROCS; 0 means Go's default. Computing adds goroutines that never
	// wait, one per processor.
	Procs     int  `json:"procs,omitempty"`
	Computing bool `json:"computing,omitempty"`

	Timeouts bool   `json:"timeouts,omitempty"` // set the four timeouts of http.Server
	TLS      bool   `json:"tls,omitempty"`      // servers over HTTP and AppGRPC only
	Wrapped  bool   `json:"wrapped,omitempty"`  // TLS is a tls.NewListener around the server's listener
	HTTP2    bool   `json:"http2,omitempty"`    // the load speaks HTTP/2, in clear with prior knowledge
	Dir      string `json:"dir,omitempty"`      // the files of AppFiles
	Backend  string `json:"backend,omitempty"`  // the address the proxies dial
	Client   bool   `json:"client,omitempty"`   // AppProxyHTTP calls Backend as AppCaller does

	// CallTLS, CallPath and CallBytes say how AppCaller calls Backend: over TLS, on which path, and with
	// how long a body; without one it is a GET. Calls replaces CallsPerRequest.
	CallTLS   bool   `json:"callTLS,omitempty"`
	CallPath  string `json:"callPath,omitempty"`
	CallBytes int    `json:"callBytes,omitempty"`
	Calls     int    `json:"calls,omitempty"`

	// Hosts, if not 0, makes a server on package net listen on so many addresses, at the same port:
	// 127.0.0.1 and those that follow it, which only Linux has. CallHosts makes AppCaller call so many
	// of them in turn.
	Hosts     int `json:"hosts,omitempty"`
	CallHosts int `json:"callHosts,omitempty"`

	// CallIdle is how many idle connections OpHold may leave to AppCaller's client.
	CallIdle int `json:"callIdle,omitempty"`

	// CallConns, if not 0, makes AppCaller's calls those of gRPC, on so many connections. They are of
	// CallKind, by default unary; with CallIdle there is another client for each idle connection.
	CallConns int    `json:"callConns,omitempty"`
	CallKind  string `json:"callKind,omitempty"`

	// CallHTTP2, if not 0, makes AppCaller's calls go over HTTP/2, by so many clients with a connection
	// each.
	CallHTTP2 int `json:"callHTTP2,omitempty"`
}

// Exists reports whether there is such a server. Only HTTP and gRPC have the fast path, only gRPC has
// a server of its adapter's own, fasthttp and nginx have only one handler, fasthttp a client and nginx
// a proxy besides, nghttpd has only HTTP/2 and files, and event handlers what goes on below HTTP. Bare
// code and event handlers answer in place of an HTTP server as well: no server can cost less.
func (s Spec) Exists() bool {
	switch {
	case (s.Engine.Bare || s.Engine.Reactor) && s.App == AppHTTP:
		return !s.TLS && !s.HTTP2 && !s.Computing && !s.Timeouts
	case s.Engine.Bare:
		return s.App == AppCaller && !s.CallTLS && s.CallPath == "" && s.CallBytes == 0 && s.CallIdle == 0 && s.CallConns == 0 && s.CallHTTP2 == 0 && s.CallHosts == 0
	case s.Engine.FastHTTP && s.App == AppCaller:
		return s.CallIdle == 0 && s.CallConns == 0 && s.CallHTTP2 == 0 && s.CallHosts == 0
	case s.Engine.Nginx && s.App == AppProxyHTTP:
		return true
	case s.Engine.FastHTTP, s.Engine.Nginx:
		return s.App == AppHTTP && !s.TLS && !s.HTTP2 && !(s.Engine.Nginx && (s.Computing || s.Timeouts))
	case s.Engine.Nghttpd:
		return s.HTTP2 && (s.App == AppHTTP || s.App == AppJSON || s.App == AppUpload)
	case s.Engine.FastPath:
		return s.overHTTP() || s.App == AppGRPC
	case s.Engine.NewServer:
		return s.App == AppGRPC
	case s.Engine.Reactor, s.Engine.Peer != "":
		return s.App == AppEcho || s.App == AppBroadcast || s.App == AppRESP
	}
	return true
}

// overHTTP reports whether the server is an http.Server.
func (s Spec) overHTTP() bool {
	switch s.App {
	case AppHTTP, AppJSON, AppWaiting, AppSpin, AppFiles, AppUpload, AppMirror, AppUpgrade, AppProxyHTTP, AppCaller, AppEvents, AppBottleneck:
		return true
	}
	return false
}

// The servers that a target process can run.
const (
	AppHTTP       = "http"       // net/http: a short text
	AppJSON       = "json"       // net/http: a JSON document of Spec.JSONBytes
	AppWaiting    = "waiting"    // net/http: the short text; on WaitPath, once OpRelease has come
	AppSpin       = "spin"       // net/http: burns Spec.SpinIterations, then sends the short text
	AppFiles      = "files"      // net/http: http.FileServer on Spec.Dir
	AppUpload     = "upload"     // net/http: reads the body, then sends the short text
	AppMirror     = "mirror"     // net/http: sends the body back
	AppUpgrade    = "upgrade"    // net/http: switches to another protocol, as a WebSocket's server does, and closes
	AppProxyHTTP  = "proxy-http" // net/http: httputil.ReverseProxy to Spec.Backend
	AppCaller     = "caller"     // net/http: calls Spec.Backend CallsPerRequest times, then sends the short text
	AppBottleneck = "bottleneck" // net/http: holds one of BottleneckPlaces for BottleneckTime, then sends the short text
	AppEvents     = "events"     // net/http: each POST's body is a server-sent event to all that make a GET
	AppProxyTCP   = "proxy-tcp"  // io.Copy in both directions between client and Spec.Backend
	AppEcho       = "echo"       // sends bytes back as they come
	AppBroadcast  = "broadcast"  // sends bytes to all connections as they come
	AppRESP       = "resp"       // a kv.Store
	AppBuffers    = "buffers"    // for each byte Spec.Slices slices, with net.Buffers.WriteTo
	AppGRPC       = "grpc"       // grpc-go: the Echo service
)

// AppBottleneck's requests wait for a place without a limit, as for a connection to a database.
const (
	BottleneckPlaces = 8
	BottleneckTime   = 10 * time.Millisecond
)

// LimitWait is how long requests wait with Engine.Limit.
const LimitWait = 30 * time.Millisecond

// CallsPerRequest is how many calls of an HTTP client AppCaller makes for a request, one after the
// other, so that the request itself is a small part of the cost. The client is
// httpadapter.NewTransport's where Engine.FastPath is set, fasthttp's where Engine.FastHTTP is, else
// http.Transport's; with Engine.Bare there is none. Clients of gRPC are grpcadapter.NewClient's and
// grpc.NewClient's.
const CallsPerRequest = 50

// The kinds of gRPC calls of AppCaller, besides unary ones.
const (
	CallList     = "list"     // answered by ListMessages messages
	CallPingPong = "pingpong" // a message there and back on a stream that stays open
)

// WaitPath is the path on which AppWaiting waits.
const WaitPath = "/wait"

// Engine is the engine that a server listens on.
type Engine struct {
	Name string `json:"name"` // EngineNet or EnginePercore

	// FastPath runs HTTP servers with httpadapter, and AppGRPC with grpcadapter.Wrap; see Spec.Exists.
	FastPath bool `json:"fastPath,omitempty"`

	// NewServer runs a grpcadapter.Server in place of a grpc.Server; see Spec.Exists.
	NewServer bool `json:"newServer,omitempty"`

	// Detach makes the handlers that wait, of AppWaiting and of AppGRPC's EchoWatch, detach their answers
	// and return. It goes with FastPath or NewServer.
	Detach bool `json:"detach,omitempty"`

	// Limit lets as many handlers of AppBottleneck run as it has places (httpadapter.LimitWork). It goes
	// with FastPath.
	Limit bool `json:"limit,omitempty"`

	// FastHTTP runs the server of package fasthttp in place of net/http, for AppHTTP without TLS; and for
	// AppCaller its client, below a server of net/http. See Spec.Exists.
	FastHTTP bool `json:"fastHTTP,omitempty"`

	// Bare makes AppCaller, and AppHTTP, write and read on connections of the engine, without HTTP; see
	// Spec.Exists.
	Bare bool `json:"bare,omitempty"`

	// Nginx runs nginx, where it is installed, in place of a server in this process; see
	// Spec.Exists.
	Nginx bool `json:"nginx,omitempty"`

	// Nghttpd is the same with nghttpd.
	Nghttpd bool `json:"nghttpd,omitempty"`

	// Reactor runs the server as an event handler of package reactor; see Spec.Exists.
	Reactor bool `json:"reactor,omitempty"`

	// Peer runs a server of RegisterPeer; see Spec.Exists.
	Peer string `json:"peer,omitempty"`

	// The rest is for EnginePercore. The zero values are the defaults of percore.Listen.
	Loops       int  `json:"loops,omitempty"`
	Thread      bool `json:"thread,omitempty"` // loop.Thread instead of loop.Nested
	Pin         bool `json:"pin,omitempty"`
	LeastLoaded bool `json:"leastLoaded,omitempty"`
	MPTCP       bool `json:"mptcp,omitempty"`
	NetBuffers  bool `json:"netBuffers,omitempty"` // percore.ListenConfig.NetBuffers
}

// The engines that a server can listen on.
const (
	EngineNet     = "net"
	EnginePercore = "percore"
)

// Started is the reply to OpStart.
type Started struct {
	Addr       string `json:"addr"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Loops      int    `json:"loops"` // event loops of the engine; 0 for EngineNet
}

// Waiting is how many handlers wait.
type Waiting struct {
	Handlers int `json:"handlers"`
}

// Held is how many calls are open at a time, each on a connection of its own.
type Held struct {
	Calls int `json:"calls"`
}

// Reused is how many calls had a connection that had been idle.
type Reused struct {
	Calls int `json:"calls"`
}

// Profile names the file that a CPU profile of the process is written to.
type Profile struct {
	Path string `json:"path"`
}

// Usage is a snapshot of what the process has consumed since it started.
type Usage struct {
	User       time.Duration `json:"user"`
	System     time.Duration `json:"system"`
	Voluntary  int64         `json:"voluntary"`  // voluntary context switches
	Preempted  int64         `json:"preempted"`  // involuntary context switches
	Mallocs    uint64        `json:"mallocs"`    // heap objects allocated
	AllocBytes uint64        `json:"allocBytes"` // heap bytes allocated
	Moves      uint64        `json:"moves"`      // of threads between processors; 0 if unknown
	Loops      int           `json:"loops"`      // loops of the engine that have connections
	Wakeups    uint64        `json:"wakeups"`    // of the engine's loops
	Events     uint64        `json:"events"`     // of the engine's loops
	FastPath   uint64        `json:"fastPath"`   // requests that httpadapter has served over HTTP/1
}

// CPU returns the CPU time used, in user space and in the kernel together.
func (u Usage) CPU() time.Duration { return u.User + u.System }

// Since returns what the process has consumed since before. Loops stay as they are.
func (u Usage) Since(before Usage) Usage {
	return Usage{
		User: u.User - before.User, System: u.System - before.System,
		Voluntary: u.Voluntary - before.Voluntary, Preempted: u.Preempted - before.Preempted,
		Mallocs: u.Mallocs - before.Mallocs, AllocBytes: u.AllocBytes - before.AllocBytes,
		Moves: u.Moves - min(u.Moves, before.Moves), // less if a thread has ended
		Loops: u.Loops, Wakeups: u.Wakeups - before.Wakeups, Events: u.Events - before.Events,
		FastPath: u.FastPath - before.FastPath,
	}
}

// Memory is the lasting memory of the process: after a garbage collection, and after it has
// returned free memory to the kernel.
type Memory struct {
	Resident   int64 `json:"resident"` // bytes in RAM, Rss of /proc/self/smaps_rollup
	Heap       int64 `json:"heap"`     // bytes of live heap objects
	Stack      int64 `json:"stack"`    // bytes of goroutine stacks
	Goroutines int64 `json:"goroutines"`
}
