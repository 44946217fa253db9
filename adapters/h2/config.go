package h2

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"reflect"
	"slices"
	"time"

	"github.com/percore/percore/internal/http2"
)

// A Config configures a Server. The zero value is ready to use: a field that is zero has the default
// that its comment names. It is copied.
type Config struct {
	// TLS, if not nil, makes Serve speak TLS. The protocol "h2" is added to its NextProtos.
	// Connections on which ALPN chooses another protocol, or none, are closed.
	TLS *tls.Config

	// Accept, if not nil, is called with each connection that Serve has accepted, and says how it becomes
	// a Conn. It must not block. TLS takes its place.
	Accept func(nc net.Conn) Accepted

	// Unused, if not nil, is called when the server no longer has a listener or a connection: see
	// [Server.InUse]. It may be called more than once.
	Unused func()

	// Streams is how many streams a client may have open at once: 250. With RetryStreams, further streams
	// are always refused with REFUSED_STREAM; without it only while the client may not know the limit
	// yet, and later with PROTOCOL_ERROR.
	Streams      int
	RetryStreams bool

	// HeaderBytes and HeaderFields limit the fields of a header: 64 KiB, with 32 bytes for each besides
	// its name and value (RFC 9113, section 6.5.2), and 500. A request beyond these limits has the
	// Problem TooLarge. A header block of more than ten times HeaderBytes, and more than 1 MiB, ends the
	// connection.
	HeaderBytes  int
	HeaderFields int

	// StreamWindow and ConnWindow are how many bytes of bodies a client may send before handlers read
	// them, on one stream and in total: 1 MiB each.
	StreamWindow int
	ConnWindow   int

	// FrameBytes is the longest frame that a client may send, and SendFrameBytes the longest that
	// it gets, if it allows more than 16 KiB: 16 KiB each.
	FrameBytes     int
	SendFrameBytes int

	// DecoderTableBytes and EncoderTableBytes limit the tables of header compression: 4 KiB and
	// 1 KiB. Negative: no table.
	DecoderTableBytes int
	EncoderTableBytes int

	// Priorities says what the server does with the priorities of RFC 9218, with which a client says what
	// it wants first: UnknownPriorities.
	Priorities Priorities

	// ExtendedConnect allows CONNECT with a :protocol (RFC 8441).
	ExtendedConnect bool

	// AnyTarget is for protocols other than HTTP above HTTP/2. Requests whose method, scheme, authority
	// or path is missing, or not as HTTP demands, go to the Handler with BadTarget set. Without it they
	// are reset with PROTOCOL_ERROR.
	AnyTarget bool

	// IgnoreGoAway lets a client that has sent GOAWAY open streams as before. Without it the
	// connection ends when the streams that are open have ended.
	IgnoreGoAway bool

	// IgnoreIdleResets ignores RST_STREAM for a stream that the client has not opened. It is for RPC
	// systems whose clients send that when a call is cancelled before its header is written, as gRPC's C
	// core does. Without it the connection ends, as RFC 9113, section 5.1, demands.
	IgnoreIdleResets bool

	// BeginTimeout limits the handshake, the client's preface and its first SETTINGS together: 10 s.
	BeginTimeout time.Duration

	// IdleTimeout is how long a connection without streams is kept: 3 min. Then it ends as with
	// [Conn.GoAway]. Negative: no limit.
	IdleTimeout time.Duration

	// WriteTimeout is how long the client may take nothing of what is sent to it, before its streams end
	// with a GOAWAY: 30 s, or up to a quarter more. After the same time again, in which a client that was
	// stopped may read the GOAWAY, the connection is closed. A handler that is sending returns by then. A
	// client takes what its kernel acknowledges, which may be 100 KB and more before the program has read
	// any of it. So each KiB gives the client a second more, up to four times WriteTimeout, and a client
	// that reads 1 KiB/s is not cut off. Where the acknowledged bytes aren't known, off Linux and in
	// memory, it must take 16 KiB within WriteTimeout. Closed windows don't count: see
	// [Stream.SetWriteDeadline]. Negative: no limit.
	WriteTimeout time.Duration

	// PingAfter, if not 0, is how long a connection may be silent before it is tested with a
	// PING, which must be answered within PingTimeout: 15 s.
	PingAfter   time.Duration
	PingTimeout time.Duration

	// MaxAge is how long a connection is kept before the client is told to open another one: no limit.
	// Each connection's limit differs from it by up to a tenth, so that connections that began together
	// don't end together. AgeGrace is how long the streams may then go on before the connection is
	// closed: no limit. A client that doesn't take the rest of the output gets one more second.
	MaxAge   time.Duration
	AgeGrace time.Duration

	// DrainTime is how long a draining connection waits for the client's answer to the PING after the
	// first GOAWAY, before a second GOAWAY says which stream is the last: 1 s, as in net/http.
	DrainTime time.Duration

	// Resets is how many streams a client may reset at once: 12,000. It earns as many again each second,
	// but not more than 12,000, and one for each stream that ends well. When a client has reset more, its
	// new streams are refused with REFUSED_STREAM; when it has reset as many again, its connection is
	// closed.
	Resets int

	// Explain makes GOAWAYs say why they are sent, in debug data that is for humans: "max_age",
	// "max_idle" and "graceful_stop", as grpc-go says, or which rule of HTTP/2 the client has broken.
	Explain bool

	// Crash lets a handler's panic end the program, as it would on the handler's own goroutine.
	Crash bool

	// Log gets the panics of handlers: slog.Default().
	Log *slog.Logger

	pingIdle        bool // PingAfter counts without streams, too
	pingResets      bool // see ClientConfig.PingResets
	reserve         bool // see ClientConfig.Reserve
	creditOnReceipt bool // see ClientConfig
	answerEnds      bool // see ClientConfig
}

// Priorities says what a server does with the priorities of RFC 9218: the field "priority" of requests,
// and the frame PRIORITY_UPDATE.
type Priorities uint8

// The choices. With the last two, SETTINGS_NO_RFC7540_PRIORITIES says that the server knows these
// priorities.
const (
	UnknownPriorities = Priorities(http2.UnknownPriorities) // answers that wait take turns, a frame each
	IgnorePriorities  = Priorities(http2.IgnorePriorities)  // the same, but a PRIORITY_UPDATE without a stream is an error
	ServePriorities   = Priorities(http2.ServePriorities)   // answers that wait are sent in the order that the client wants
)

// Accepted says how a connection becomes a Conn.
type Accepted struct {
	// User is the value that the Conn's User returns.
	User any

	// Handshake, if not nil, runs before HTTP/2, within BeginTimeout. It returns the connection to serve:
	// nc, or one above it, or nil if it has given the connection to another server. If it fails, the
	// connection is closed.
	//
	// It may block. At most 16,384 calls run at a time; of these at most 1,024 have begun within the last
	// second, and at most half of those come from one IPv4 address or IPv6 network of 64 bits. The others
	// wait. Only as many calls compute as there are processors; while one waits in nc's Read or Write,
	// another computes. nc has only net.Conn's methods, and NetConn, which returns the accepted connection.
	Handshake func(nc net.Conn) (net.Conn, error)

	// ClientFirst says that the handshake begins with bytes from the client: Handshake is called when
	// they have come, and a percore connection that waits for them holds no goroutine.
	ClientFirst bool
}

// The default times.
const (
	beginTimeout = 10 * time.Second
	idleTimeout  = 3 * time.Minute
	writeTimeout = 30 * time.Second
	drainTime    = time.Second // net/http's goAwayTimeout
	pingTimeout  = 15 * time.Second
)

// negatives are the fields of Config whose comments give a negative value a meaning.
var negatives = []string{"DecoderTableBytes", "EncoderTableBytes", "IdleTimeout", "WriteTimeout"}

// check returns an error if a field is negative and must not be.
func (c *Config) check() error {
	all := reflect.ValueOf(c).Elem()
	for i := range all.NumField() {
		name, value := all.Type().Field(i).Name, all.Field(i)
		if value.CanInt() && value.Int() < 0 && !slices.Contains(negatives, name) {
			return fmt.Errorf("the field %s of Config is negative, %d: want 0, for the default, or more", name, value.Int())
		}
	}
	return nil
}

// withDefaults returns c with zeros replaced by the defaults. Times that are off are 0.
func (c Config) withDefaults() Config {
	c.BeginTimeout = cmp.Or(c.BeginTimeout, beginTimeout)
	c.DrainTime = cmp.Or(c.DrainTime, drainTime)
	c.PingTimeout = cmp.Or(c.PingTimeout, pingTimeout)
	c.IdleTimeout = max(cmp.Or(c.IdleTimeout, idleTimeout), 0)
	c.WriteTimeout = max(cmp.Or(c.WriteTimeout, writeTimeout), 0)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// The bounds of settings and windows.
const (
	windowMin = 65535
	windowMax = 1<<31 - 1
	frameMin  = 1 << 14
	frameMax  = 1<<24 - 1
)

// core returns the limits for the core.
func (c *Config) core() *http2.Config {
	to := http2.DefaultConfig()
	to.ExtendedConnect, to.RetryStreams, to.Explain = c.ExtendedConnect, c.RetryStreams, c.Explain
	to.AnyTarget, to.IgnoreGoAway, to.IgnoreIdleResets = c.AnyTarget, c.IgnoreGoAway, c.IgnoreIdleResets
	to.Priorities, to.CreditOnReceipt = http2.Priorities(c.Priorities), c.creditOnReceipt
	setLimit(&to.Streams, c.Streams, 0, windowMax)
	setLimit(&to.Resets.Burst, c.Resets, 0, windowMax)
	to.Resets.PerSecond = min(to.Resets.PerSecond, to.Resets.Burst)
	setLimit(&to.HeaderListBytes, c.HeaderBytes, 0, windowMax)
	setLimit(&to.HeaderFields, c.HeaderFields, 0, math.MaxInt)
	setLimit(&to.StreamWindowBytes, c.StreamWindow, 0, windowMax)
	setLimit(&to.ConnWindowBytes, c.ConnWindow, windowMin, windowMax)
	setLimit(&to.FrameBytes, c.FrameBytes, frameMin, frameMax)
	setLimit(&to.SendFrameBytes, c.SendFrameBytes, frameMin, frameMax)
	setLimit(&to.DecoderTableBytes, c.DecoderTableBytes, 0, windowMax)
	setLimit(&to.EncoderTableBytes, c.EncoderTableBytes, 0, windowMax)
	return to
}

// setLimit sets a limit to n, or to the nearest value that fits, unless n is 0.
func setLimit[T int | int32 | uint32](to *T, n, least, most int) {
	if n != 0 {
		*to = T(min(max(n, least), most))
	}
}
