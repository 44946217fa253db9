package reactor

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/percore/percore/adapters/reactor/internal/layer"
)

// Option changes a server. See the functions that return one.
type Option interface{ apply(c *config) }

// option is an Option by a function.
type option func(c *config)

func (o option) apply(c *config) { o(c) }

type config struct {
	perLoop       func(loop int) Handler
	readBufferMax int
	highWaterMark int
	hardLimit     int
	limits        [timeoutKinds]time.Duration
	workers       int
	waitingMax    int
	slowCallback  time.Duration
	log           *slog.Logger
	nilArgument   string            // to an option; "": none was nil
	handshakes    *layer.Handshakes // nil without TLS
}

// The defaults. A connection that reads pipelined requests and answers them holds at most the
// first two of these, besides what its handler's last answer added.
const (
	readBufferMax     = 1 << 20
	highWaterMark     = 64 << 10
	hardLimit         = 16 << 20
	defaultWaitingMax = 100 // so many short functions keep a worker busy until the next are read
)

func newConfig(options []Option) (config, error) {
	c := config{readBufferMax: readBufferMax, highWaterMark: highWaterMark, hardLimit: hardLimit, waitingMax: defaultWaitingMax, log: slog.Default()}
	for i, o := range options {
		if o == nil {
			return c, fmt.Errorf("reactor: New was called with nil for option %d", i+1)
		}
		o.apply(&c)
	}
	for kind, d := range c.limits {
		if d < 0 {
			return c, fmt.Errorf("reactor: %s(%v) is negative; 0 means no timeout", timeoutNames[kind], d)
		}
	}
	switch {
	case c.nilArgument != "":
		return c, fmt.Errorf("reactor: %s was called with nil; leave the option out for the default", c.nilArgument)
	case c.readBufferMax < 1:
		return c, fmt.Errorf("reactor: ReadBufferMax is %d bytes; it must be 1 at least", c.readBufferMax)
	case c.highWaterMark < 1:
		return c, fmt.Errorf("reactor: WriteHighWaterMark is %d bytes; it must be 1 at least", c.highWaterMark)
	case c.hardLimit < c.highWaterMark:
		return c, fmt.Errorf("reactor: WriteHardLimit is %d bytes; it must be WriteHighWaterMark, %d, at least", c.hardLimit, c.highWaterMark)
	case c.slowCallback < 0:
		return c, fmt.Errorf("reactor: SlowCallback(%v) is negative; 0 means the default, a second", c.slowCallback)
	case c.workers < 0 || c.waitingMax < 0:
		return c, fmt.Errorf("reactor: Workers(%d, %d) is negative", c.workers, c.waitingMax)
	case c.handshakes != nil:
		return c, c.handshakes.Works()
	}
	return c, nil
}

// PerLoop gives each loop a handler of its own, so that connections of one loop share state
// without a lock. make is called once per loop, before its first connection, with 0, 1, and so on;
// the handler that the server was made with may be nil then. make must not call the server, which
// waits for it. All loops count that the server's connections are on: those of its listeners, and those
// on which connections for Attach were dialed or accepted. A loop that has ended, since nothing was
// on it any more, leaves its number and its handler to the next.
func PerLoop(make func(loop int) Handler) Option {
	return option(func(c *config) {
		if c.perLoop = make; make == nil {
			c.nilArgument = "PerLoop"
		}
	})
}

// ReadBufferMax is how many unused bytes are kept, and so how long a message that Data waits for may
// be: 1 MiB by default.
func ReadBufferMax(bytes int) Option { return option(func(c *config) { c.readBufferMax = bytes }) }

// WriteHighWaterMark is how many written bytes may wait for the peer before reading pauses: 64 KiB by
// default. Reading goes on when fewer than half as many wait. So a peer that sends requests and does
// not read the answers is held up, and no memory grows.
func WriteHighWaterMark(bytes int) Option { return option(func(c *config) { c.highWaterMark = bytes }) }

// WriteHardLimit is how many written bytes may wait for the peer at all: 16 MiB by default. Only a
// single Write, called when none wait, may have more. A Write beyond that fails with
// [ErrWriteBufferFull], and ends the connection unless the handler is a [RoomHandler]. It bounds the
// memory for a peer to which the server writes without being asked.
func WriteHardLimit(bytes int) Option { return option(func(c *config) { c.hardLimit = bytes }) }

// Workers bounds [Conn.Go]. At most n of its functions run at a time, those of different connections in
// turn; 0, the default, means one of each connection. While more than waitingMax functions of a
// connection wait, it isn't read, until half as many do; 0 means the default, 100. So a peer that sends
// requests faster than they are worked off is held up, and no other. The functions' memory isn't
// counted: if each keeps a long request, use a smaller waitingMax, or count the bytes and call
// [Conn.Pause]. Functions that aren't called for what a peer sends aren't bounded.
func Workers(n, waitingMax int) Option {
	return option(func(c *config) { c.workers, c.waitingMax = n, cmp.Or(waitingMax, defaultWaitingMax) })
}

// SlowCallback logs each call of the handler that takes longer, since all other connections of the
// loop wait for it. With 0, the default, those of a second or longer are logged, and calls of Data for
// the bytes of one read are timed together (Stats).
func SlowCallback(d time.Duration) Option { return option(func(c *config) { c.slowCallback = d }) }

// ErrorLog is where panics and slow calls are reported. The default is slog's default logger.
func ErrorLog(log *slog.Logger) Option {
	return option(func(c *config) {
		if c.log = log; log == nil {
			c.nilArgument = "ErrorLog"
		}
	})
}
