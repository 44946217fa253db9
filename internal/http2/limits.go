package http2

import (
	"time"

	"github.com/percore/percore/internal/http2/hpack"
)

// A Config holds a server's settings for its connections. It must not change once a connection uses
// it. DefaultConfig returns the defaults, which the comments name.
type Config struct {
	// Streams is how many streams a client may have open (SETTINGS_MAX_CONCURRENT_STREAMS): 250, as
	// in net/http. Five times as many handlers may run or wait, because handlers of streams that
	// were reset count until Conn.Returned. One more ends the connection with ENHANCE_YOUR_CALM.
	Streams uint32

	// RetryStreams refuses streams beyond Streams with REFUSED_STREAM, after which a client may try
	// again. Without it, as in net/http, that is for clients that may not know the limit yet, and
	// others get PROTOCOL_ERROR (RFC 9113, section 5.1.2, allows both).
	RetryStreams bool

	// HeaderListBytes and HeaderFields limit a list of fields: 64 KiB, counted as in RFC 9113, and
	// 500 fields, as in net/http of Go 1.27. Cookie crumbs and pseudo-header fields count like
	// others. A request beyond them has the Problem TooLarge. Huffman-coded strings are decoded
	// only as long as the list has room.
	HeaderListBytes int
	HeaderFields    int

	// Continuations is how many CONTINUATION frames a block may have: 100.
	Continuations int

	// FrameBytes is the longest payload that is accepted (SETTINGS_MAX_FRAME_SIZE): 16 KiB. An
	// incomplete frame can hold that much memory, unless it is DATA, which is passed on in parts.
	FrameBytes int

	// SendFrameBytes is the longest payload that is sent, if the client allows more than 16 KiB: 16 KiB.
	SendFrameBytes int

	// StreamWindowBytes and ConnWindowBytes are how much a client may send ahead of the handlers'
	// reads, on one stream and in total: 1 MiB each, as in net/http. ConnWindowBytes is at least
	// 65,535.
	StreamWindowBytes int32
	ConnWindowBytes   int32

	// DecoderTableBytes and EncoderTableBytes limit the tables of HPACK: 4 KiB and 1 KiB.
	DecoderTableBytes uint32
	EncoderTableBytes uint32

	// ControlFrames is how many answers to the client's frames (acknowledgements of SETTINGS and
	// PING, RST_STREAM, WINDOW_UPDATE) may wait in the output: 2,000. A client that makes the
	// server send more without reading them gets ENHANCE_YOUR_CALM. RST_STREAM by Conn.Reset weighs a
	// tenth: thousands of calls with one deadline are reset before the first is sent.
	ControlFrames int

	// Resets limits streams that end early because of the client: with its RST_STREAM (rapid reset,
	// CVE-2023-44487), or with ours for a rule that it broke ("made you reset", CVE-2025-8671).
	// Refused streams count, too. 5,000, plus 500 each second, plus one for each stream that ends
	// well; at most 5,000 are saved up. A page in a browser resets as many streams as may be open
	// when it drops its loads: 250 in a tenth of a second, 400 a second if it does so again and
	// again. It isn't this limit that protects handlers, but that of those that run.
	Resets Budget

	// Idle limits frames that do nothing for a server: PING, SETTINGS, PRIORITY, WINDOW_UPDATE,
	// empty DATA, unknown types. 5,000, plus 500 each second, plus more for each request, for PINGs
	// that measure answers, and for bodies in either direction, so it doesn't affect a client that
	// downloads with small windows.
	Idle Budget

	// ExtendedConnect allows CONNECT with :protocol (RFC 8441).
	ExtendedConnect bool

	// Explain makes the GOAWAY of an error say in words which rule the peer broke. net/http says
	// nothing; grpc-go does for some.
	Explain bool

	// Strings, if not nil, shares strings between the tables of connections.
	Strings *hpack.Interner
}

// A Budget limits how often something may happen: Burst times, plus PerSecond for each second that
// is reported with Conn.Advance. Beyond that the connection ends with ENHANCE_YOUR_CALM.
type Budget struct{ Burst, PerSecond int }

// DefaultConfig returns the defaults.
func DefaultConfig() *Config {
	return &Config{
		Streams:           250,
		HeaderListBytes:   64 << 10,
		HeaderFields:      500,
		Continuations:     100,
		FrameBytes:        maxFrameBytes,
		SendFrameBytes:    maxFrameBytes,
		StreamWindowBytes: 1 << 20,
		ConnWindowBytes:   1 << 20,
		DecoderTableBytes: hpack.DefaultTableBytes,
		EncoderTableBytes: hpack.EncoderTableBytes,
		ControlFrames:     2000,
		Resets:            Budget{5000, 500},
		Idle:              Budget{5000, 500},
	}
}

const (
	ownReset, answer  = 1, 10 // see Config.ControlFrames
	handlersPerStream = 5     // there may be this times Config.Streams handlers
	idlePerRequest    = 16    // added to Idle by a request
	idlePerMeasure    = 2     // added by a PING behind a part of an answer: it, and its WINDOW_UPDATE
	idleBytes         = 256   // this many bytes of a body add one to Idle
	thousand          = 1000
)

// A budget is what is left of a Budget, in thousandths, so that short times count.
type budget int64

func (b Budget) start() budget { return budget(b.Burst) * thousand }

// add gives back a number of thousandths of a Budget.
func (b *budget) add(n int64, of Budget) { *b = min(*b+budget(n), of.start()) }

// addIdle and addResets give back a number of thousandths.
func (c *Conn) addIdle(n int64)   { c.idle.add(n, c.cfg.Idle) }
func (c *Conn) addResets(n int64) { c.resets.add(n, c.cfg.Resets) }

// spend takes n from a budget, and reports whether that much was left.
func (c *Conn) spend(b *budget, n budget) bool {
	*b -= n * thousand
	return *b >= 0
}

var (
	tooManyIdle   = limitError(IdleLimit, "too many frames that bring nothing")
	tooManyResets = limitError(ResetLimit, "too many streams that end early")
)

// Advance tells the connection that time has passed since the last call. A driver calls it with the
// time between two reads.
func (c *Conn) Advance(d time.Duration) {
	d = min(max(d, 0), time.Hour) // an hour fills every budget; more would overflow
	c.addResets(int64(c.cfg.Resets.PerSecond) * int64(d/time.Microsecond) / thousand)
	c.addIdle(int64(c.cfg.Idle.PerSecond) * int64(d/time.Microsecond) / thousand)
}
