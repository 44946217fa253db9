package http2

import (
	"time"

	"github.com/percore/percore/internal/http2/hpack"
)

// A Config is what a server sets for its connections. It must not change once a connection uses it.
// DefaultConfig has the defaults, which are the values in the comments.
type Config struct {
	// Streams is how many streams a client may have open (SETTINGS_MAX_CONCURRENT_STREAMS): 250, as
	// with net/http. Five times as many handlers may run or wait: those of streams that were reset
	// count until Conn.Returned. One more ends the connection with ENHANCE_YOUR_CALM.
	Streams uint32

	// HeaderListBytes and HeaderFields limit a list of fields, cookie crumbs and pseudo-header
	// fields counted like others: 64 KiB, by RFC 9113's way to count, and 500, as with Go 1.27's
	// net/http. A request beyond them has the Problem TooLarge. The Huffman-coded strings of a block
	// are decoded as far as the list goes.
	HeaderListBytes int
	HeaderFields    int

	// Continuations is how many CONTINUATION frames a block may have: 100.
	Continuations int

	// FrameBytes is the longest payload that is accepted (SETTINGS_MAX_FRAME_SIZE): 16 KiB. So much
	// is held of a frame that is not whole, unless it is DATA, whose parts are passed on at once.
	FrameBytes int

	// SendFrameBytes is the longest payload that is sent, if the client allows more than 16 KiB: 16 KiB.
	SendFrameBytes int

	// StreamWindowBytes and ConnWindowBytes are how much a client may send ahead of the handlers' reads,
	// on a stream and altogether: 1 MiB each, as with net/http. ConnWindowBytes is 65,535 at least.
	StreamWindowBytes int32
	ConnWindowBytes   int32

	// DecoderTableBytes and EncoderTableBytes limit the tables of HPACK: 4 KiB and 1 KiB.
	DecoderTableBytes uint32
	EncoderTableBytes uint32

	// ControlFrames is how many frames that answer the client's (acknowledgements of SETTINGS and PING,
	// RST_STREAM, WINDOW_UPDATE) may wait in the output: 2,000. A client that makes the server send
	// more without reading them gets ENHANCE_YOUR_CALM.
	ControlFrames int

	// Resets are for streams that end early because of the client: by its RST_STREAM (rapid reset,
	// CVE-2023-44487), or by ours for a rule that it broke ("made you reset", CVE-2025-8671), refused
	// streams among them. 500, and 50 more each second, and one more for each stream that ends
	// well; 500 at most are saved up.
	Resets Budget

	// Idle is for frames that bring a server nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty
	// DATA, unknown types. 5,000, and 500 more each second, and more for each request and for
	// bodies in either direction, so that a client that downloads by small windows isn't met.
	Idle Budget

	// ExtendedConnect allows CONNECT with :protocol (RFC 8441).
	ExtendedConnect bool

	// Strings, if not nil, shares strings between the tables of connections.
	Strings *hpack.Interner
}

// A Budget limits how often something may happen: Burst times, and PerSecond more each second that
// Conn.Advance tells of. Beyond it the connection ends with ENHANCE_YOUR_CALM.
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
		Resets:            Budget{500, 50},
		Idle:              Budget{5000, 500},
	}
}

const (
	handlersPerStream = 5   // Config.Streams times this is how many handlers may be there
	idlePerRequest    = 16  // added to Idle by a request
	idleBytes         = 256 // of a body add one to Idle
	thousand          = 1000
)

// A budget is what is left of a Budget, in thousandths, so that short times count.
type budget struct{ left, most int64 }

func (b Budget) start() budget { return budget{int64(b.Burst) * thousand, int64(b.Burst) * thousand} }

// add gives back a number of thousandths.
func (b *budget) add(n int64) { b.left = min(b.left+n, b.most) }

// spend takes n from a budget, and reports whether it had them.
func (c *Conn) spend(b *budget, n int64) bool {
	b.left -= n * thousand
	return b.left >= 0
}

var (
	tooManyIdle   = connError(EnhanceYourCalm, "too many frames that bring nothing")
	tooManyResets = connError(EnhanceYourCalm, "too many streams that end early")
)

// Advance tells the connection that time has passed since the last call. A driver calls it with the
// time between two reads.
func (c *Conn) Advance(d time.Duration) {
	d = min(max(d, 0), time.Hour) // by then everything is saved up; more would overflow
	c.resets.add(int64(c.cfg.Resets.PerSecond) * int64(d/time.Microsecond) / thousand)
	c.idle.add(int64(c.cfg.Idle.PerSecond) * int64(d/time.Microsecond) / thousand)
}
