package load

import "time"

// The requests that a load process answers.
const (
	OpPrepare = "prepare" // Job → nothing; opens the connections
	OpRun     = "run"     // Phase → Result
	OpIdle    = "idle"    // Job → nothing; opens Conns idle connections, each used once
	OpRevive  = "revive"  // nothing → nothing; uses every idle connection once more
	OpAsk     = "ask"     // Job → nothing; opens Conns connections, sends a request on each
	OpAnswers = "answers" // nothing → nothing; reads the answers to OpAsk's requests
)

// The kinds of load.
const (
	KindHTTP       = "http"        // a GET, or a POST of Payload bytes, on keep-alive connections
	KindHTTP2      = "http2"       // the same over HTTP/2, several at a time
	KindHTTPClose  = "http-close"  // one connection per request
	KindEcho       = "echo"        // write Payload bytes, read them back
	KindBroadcast  = "broadcast"   // write Payload bytes on one connection, read them on all
	KindEvents     = "events"      // POST Payload bytes, read them as a server-sent event on all connections
	KindRESP       = "resp"        // Pipeline commands of RESP with values of Payload bytes
	KindBurst      = "burst"       // write one byte, read Payload bytes
	KindGRPCUnary  = "grpc-unary"  // unary RPC with Payload bytes
	KindGRPCMethod = "grpc-method" // unary RPC of the method Path with Message
	KindGRPCStream = "grpc-stream" // one message of Payload bytes there and back on an open stream
	KindGRPCWatch  = "grpc-watch"  // KindGRPCUnary; requests left open are calls of target.EchoWatch
)

// Job describes the requests and their destination.
type Job struct {
	Kind     string `json:"kind"`
	Addr     string `json:"addr"`
	Conns    int    `json:"conns"`
	Callers  int    `json:"callers,omitempty"`  // concurrent callers, gRPC and broadcasts only; 0: one per connection
	Payload  int    `json:"payload,omitempty"`  // bytes per message, or per request body
	Pipeline int    `json:"pipeline,omitempty"` // commands sent together, RESP only
	Path     string `json:"path,omitempty"`     // HTTP request path; "" means "/". KindGRPCMethod: the method
	Varies   bool   `json:"varies,omitempty"`   // HTTP only: the lengths of answers vary
	Message  []byte `json:"message,omitempty"`  // KindGRPCMethod only: protocol buffers
	TLS      bool   `json:"tls,omitempty"`      // HTTP and gRPC only
	Browser  bool   `json:"browser,omitempty"`  // HTTP only: with BrowserHeader
	Refused  bool   `json:"refused,omitempty"`  // HTTP/1.1 in an open loop only: the server may answer 503
	Odd      string `json:"odd,omitempty"`      // HTTP/1 only: what is odd about requests, one of the names below

	// Streams is how many requests are open on each connection; HTTP/2 and KindGRPCWatch only. 0: one.
	// Window is how many bytes of answers the server may send ahead, on each stream and connection;
	// HTTP/2 only. 0: 1 GiB.
	Streams int `json:"streams,omitempty"`
	Window  int `json:"window,omitempty"`
}

// The values of Job.Odd.
const (
	OddChunked = "chunked" // the body goes in one chunk
	OddExpect  = "expect"  // Expect: 100-continue, and the body with it
	OddPragma  = "pragma"  // Pragma: no-cache
	OddVersion = "version" // HTTP/1.0, which asks for keep-alive if Kind is KindHTTP
	OddUpgrade = "upgrade" // to another protocol, KindHTTPClose only
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

// workers returns how many operations may be open at once.
func (j Job) workers() int {
	if j.Callers > 0 {
		return j.Callers
	}
	return j.Conns
}

// Phase is one run of the load.
type Phase struct {
	Duration time.Duration `json:"duration"`

	// Grace is how much longer than Duration a phase may take before the target counts as hung.
	Grace time.Duration `json:"grace"`

	// Rate is the number of operations to begin per second, in an open loop. 0
	// means a closed loop.
	Rate float64 `json:"rate,omitempty"`

	// Seed is the seed of the open loop's schedule. Equal seeds give equal schedules.
	Seed uint64 `json:"seed,omitempty"`

	// InTurn uses the sessions of an open loop one after the other, so each is left alone until all
	// others have been used. The next phase continues where this one ended.
	InTurn bool `json:"inTurn,omitempty"`

	// PauseMin and PauseMax, if set, make an open loop in which each session begins an operation,
	// then pauses for a random time between them, and repeats. Sessions are independent of each
	// other. The loop then ignores Rate.
	PauseMin time.Duration `json:"pauseMin,omitempty"`
	PauseMax time.Duration `json:"pauseMax,omitempty"`

	// Within, if set, is how long after it was due an operation of an open loop must have ended to count
	// as good.
	Within time.Duration `json:"within,omitempty"`
}

// open reports whether the phase is an open loop.
func (ph *Phase) open() bool { return ph.Rate > 0 || ph.PauseMax > 0 }

// Result holds a phase's measurements.
type Result struct {
	Ops     int64         `json:"ops"`               // without those that were refused
	Good    int64         `json:"good,omitempty"`    // of these, those that Phase.Within calls good
	Refused int64         `json:"refused,omitempty"` // operations that the server has refused
	Elapsed time.Duration `json:"elapsed"`
	CPU     time.Duration `json:"cpu"`     // of the load process itself
	Latency string        `json:"latency"` // in the encoding of package latency

	// Service and Late are set only after an open loop. Service is how long operations took from
	// when they really began, as a closed loop would have reported. Late is how late the generator
	// itself was.
	Service string `json:"service,omitempty"`
	Late    string `json:"late,omitempty"`
}
