package http2

import (
	"time"

	"github.com/percore/percore/internal/http2/hpack"
)

// A Config has the settings of a server's connections, or a client's. It must not change once a
// connection uses it. DefaultConfig returns the defaults. The Config of package h2, which sets most of
// them, explains them.
type Config struct {
	// Client makes the connections a client's: see side, and ForClient. Streams, RetryStreams,
	// ExtendedConnect, AnyTarget, IgnoreGoAway, IgnoreIdleResets and Priorities are a server's.
	Client bool

	// Streams is as in net/http (RFC 9113, section 5.1.2, allows both answers to more). Five times as many
	// handlers may run or wait, because handlers of streams that were reset count until Conn.Returned.
	// More are refused with REFUSED_STREAM.
	Streams      uint32
	RetryStreams bool

	// HeaderListBytes and HeaderFields limit a list of fields as net/http of Go 1.27 does. Cookie crumbs
	// and pseudo-header fields count like others. The rest of a block that is longer is only decoded as
	// far as the table needs it, and dropped.
	HeaderListBytes int
	HeaderFields    int

	// Continuations is how many CONTINUATION frames a block may have: 100, or as many as ten lists of
	// HeaderListBytes fill. A block may have the bytes of ten lists, and of 1 MiB at least. Longer
	// blocks end the connection with ENHANCE_YOUR_CALM.
	Continuations int

	// An incomplete frame can hold FrameBytes of memory, unless it is DATA, which is passed on in parts.
	FrameBytes     int
	SendFrameBytes int

	// The windows are as in net/http. ConnWindowBytes is at least 65,535.
	StreamWindowBytes int32
	ConnWindowBytes   int32
	CreditOnReceipt   bool

	// These limit the tables of HPACK.
	DecoderTableBytes uint32
	EncoderTableBytes uint32

	// ControlFrames is how many answers to the client's frames (acknowledgements of SETTINGS and
	// PING, RST_STREAM, WINDOW_UPDATE) may wait in the output: 10,000, as in net/http. A client that
	// makes the server send more without reading them gets ENHANCE_YOUR_CALM. A server that is busy may
	// have read PINGs behind each of 9,000 short messages before it can answer the first. RST_STREAM by
	// Conn.Reset, and for streams that are refused, weighs a tenth: thousands of calls with one deadline
	// are reset before the first is sent, and thousands of requests in one read are refused.
	ControlFrames int

	// Resets limits streams that end early because of the client. When they are spent, new streams are
	// refused; when twice as many are, the connection ends. It isn't this limit that protects handlers,
	// but that of those that run. Idle limits frames that do nothing for a server. The table below has the
	// details of both.
	Resets Budget
	Idle   Budget

	// Even with AnyTarget, no pseudo-header field may be unknown, occur twice or come behind others.
	ExtendedConnect  bool
	AnyTarget        bool
	IgnoreGoAway     bool
	IgnoreIdleResets bool
	Priorities       Priorities

	// Explain makes the GOAWAY of an error say in words which rule the peer broke. net/http says
	// nothing; grpc-go does for some.
	Explain bool

	// Strings, if not nil, shares entries between the tables of connections.
	Strings *hpack.Interner
}

// Priorities says what a server does with the priorities of RFC 9218.
type Priorities uint8

// The choices.
const (
	UnknownPriorities Priorities = iota // PRIORITY_UPDATE is of no known type: as net/http of Go 1.26, and grpc-go
	IgnorePriorities                    // PRIORITY_UPDATE must be well-formed, and all answers take turns
	ServePriorities
)

// A Budget limits how often something may happen: Burst times, plus PerSecond for each second that
// is reported with Conn.Advance. Beyond that the connection ends with ENHANCE_YOUR_CALM.
//
// A limit must not count what the server itself caused, and an honest client must stay below a tenth
// of it. So the frames that ours invite are earned, and what crossed a reset of ours costs nothing that
// matters. The budgets of a connection:
//
//	Idle: 5,000, and 500 a second. Beyond it: GOAWAY.
//	  costs   1   PING, PRIORITY, PRIORITY_UPDATE, WINDOW_UPDATE, GOAWAY and frames of unknown types; empty DATA without
//	              END_STREAM; HEADERS and RST_STREAM of a stream that we have reset; RST_STREAM of one
//	              that has ended, or was not opened; everything but DATA behind our last GOAWAY
//	          10  SETTINGS, other than acknowledgements; and 1 for each 64 streams that wait to send if the
//	              initial window becomes smaller
//	  earned  40  by each new stream: PRIORITY, PRIORITY_UPDATE, a window, and what crosses our reset
//	          30  by each DATA frame with data, in both directions, unless the window cut it short: two
//	              WINDOW_UPDATEs and a PING
//	          1   by each 5 bytes of DATA that we send, even if the window cuts it short
//	          1   by each PING that we send
//	          2,000,000 are saved up at most: 65,535 messages of a byte fit the first window, and their
//	          updates may come all at once
//	  stops   floods of these frames (CVE-2019-9511, 9512, 9513, 9515, 9518), and windows that are opened
//	          by fewer than 5 bytes
//	  honest  two WINDOW_UPDATEs for each DATA frame, whatever its length (gRPC of Dart, Mint), and a PING
//	          (gRPC's C core): 3 of 30. Two updates for each 100 bytes (older Ruby): 2 of 20. A browser:
//	          4 of 40 for a request.
//
//	Resets: 12,000, and 12,000 a second. Beyond it: new streams are refused. Twice beyond it: GOAWAY.
//	  costs   1   RST_STREAM of a stream that is open; an error of a stream, for which we send RST_STREAM; a
//	              stream that is refused because of Streams or of this budget
//	  earned  1   by each stream that ends well; not more than 12,000 are saved up
//	  stops   rapid reset (CVE-2023-44487), made you reset (CVE-2025-8671)
//	  honest  a proxy that hedges and cancels 1,100 requests a second on one connection; a page in a
//	          browser that drops its loads, again and again: 250 in a tenth of a second, 400 a second
//
//	Nothing: DATA of a stream that we have reset, or behind our last GOAWAY. It is dropped and its
//	credit is given back. DATA with data of open streams.
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
		ControlFrames:     10_000,
		Resets:            Budget{12_000, 12_000},
		Idle:              Budget{5000, 500},
	}
}

// ForClient makes a configuration of defaults a client's. Its limits of frames that bring nothing are
// ten times a server's. A program has chosen the servers that it calls, and what they send may come all
// at once, when the program, or its machine, goes on after a stop: PINGs of a keepalive or of an
// estimate of the bandwidth, three for each short message of a gRPC server behind a proxy, empty DATA of
// a server that flushes. One read takes up to 15,000 PINGs before the first is answered.
func (cfg *Config) ForClient() {
	cfg.Client = true
	cfg.Idle = Budget{10 * cfg.Idle.Burst, 10 * cfg.Idle.PerSecond}
	cfg.ControlFrames *= 10
}

const (
	ownReset, answer  = 1, 10 // see Config.ControlFrames
	handlersPerStream = 5     // there may be this times Config.Streams handlers
	idlePerSettings   = 10    // that SETTINGS cost of Idle: they may change the windows and the table
	idlePerStream     = 40    // earned by a stream
	idlePerData       = 30    // earned by a DATA frame that the window did not cut
	idleBytes         = 5     // this many bytes of a body that we send earn one
	idleSaved         = 400   // times its Burst, of Idle that is earned
	blockLists        = 10    // a header block may be this many lists long
	blockBytesMin     = 1 << 20
	sendersPerShrink  = 64 // a smaller initial window takes one from Idle for so many streams that wait to send
	thousand          = 1000
)

// A budget is what is left of a Budget, in thousandths, so that short times count.
type budget int64

func (b Budget) start() budget { return budget(b.Burst) * thousand }

// earn adds a number of thousandths, as long as there are fewer than most times Budget.Burst.
func (b *budget) earn(n int64, of Budget, most budget) {
	if most *= of.start(); *b < most {
		*b = min(*b+budget(n), most)
	}
}

type budgets struct{ idle, resets budget }

func (cfg *Config) budgets() budgets { return budgets{cfg.Idle.start(), cfg.Resets.start()} }

func (b *budgets) earnIdle(cfg *Config, n int64) { b.idle.earn(n*thousand, cfg.Idle, idleSaved) }
func (b *budgets) earnReset(cfg *Config)         { b.resets.earn(thousand, cfg.Resets, 1) }

// earnForData is for a DATA frame of n bytes that we send, whole or cut short by the window.
func (b *budgets) earnForData(cfg *Config, n int, whole bool) {
	earned := int64(n) * thousand / idleBytes
	if whole {
		earned += idlePerData * thousand
	}
	b.idle.earn(earned, cfg.Idle, idleSaved)
}

func (b *budgets) spendIdle(n budget) verdict {
	if b.idle -= n * thousand; b.idle < 0 {
		return tooManyIdle
	}
	return verdict{}
}

func (b *budgets) spendReset(cfg *Config) verdict {
	if b.resets -= thousand; b.resets < -cfg.Resets.start() {
		return tooManyResets
	}
	return verdict{}
}

func (b *budgets) advance(cfg *Config, d time.Duration) {
	us := int64(min(max(d, 0), time.Hour) / time.Microsecond) // an hour fills every budget; more would overflow
	b.resets.earn(int64(cfg.Resets.PerSecond)*us/thousand, cfg.Resets, 1)
	b.idle.earn(int64(cfg.Idle.PerSecond)*us/thousand, cfg.Idle, 1)
}

var (
	tooManyUnread = limitError(AnswerLimit, "too many frames wait for the peer to read them")
	tooManyIdle   = limitError(IdleLimit, "too many frames that bring nothing")
	tooManyResets = limitError(ResetLimit, "too many streams that end early")
)

// Advance adds what the time since the last call earns. A driver calls it with the time between two
// reads.
func (c *Conn) Advance(d time.Duration) { c.budgets.advance(c.cfg, d) }

func (cfg *Config) blockBytesMax() int { return max(blockBytesMin, blockLists*cfg.HeaderListBytes) }

func (cfg *Config) continuationsMax() int {
	return max(cfg.Continuations, blockLists*cfg.HeaderListBytes/maxFrameBytes)
}
