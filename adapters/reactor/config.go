package reactor

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/percore/percore/adapters/reactor/internal/layer"
)

// A Config configures a Server. The zero value is ready: a field that is zero has the default that its
// comment names. It is copied.
type Config struct {
	// TLS, if not nil, makes accepted connections speak TLS. Package reactortls makes it. Connections that
	// the program gives to [Server.Attach] are what they are.
	TLS *TLS

	// LoopHandler, if not nil, gives each loop a handler of its own, so that connections of one loop share
	// state without a lock. It is called once per loop, before its first connection, with 0, 1, and so on;
	// the handler that the server is made with may be nil then. It must not call the server, which waits
	// for it. All loops count that the server's connections are on: those of its listeners, and those on
	// which connections for Attach were dialed or accepted. A loop that has ended, since nothing was on it
	// any more, leaves its number and its handler to the next.
	LoopHandler func(loop int) Handler

	// ReadBufferMax is how many unused bytes are kept, and so how long a message that Data waits for may
	// be: 1 MiB.
	ReadBufferMax int

	// WriteHighWaterMark is how many written bytes may wait for the peer before reading pauses: 64 KiB.
	// Reading goes on when fewer than half as many wait. So a peer that sends requests and does not read
	// the answers is held up, and no memory grows.
	WriteHighWaterMark int

	// WriteHardLimit is how many written bytes may wait for the peer at all: 16 MiB, or
	// WriteHighWaterMark if that is more. Only a single Write, called when none wait, may have more. A
	// Write beyond that fails with [ErrWriteBufferFull], and ends the connection unless the handler is a
	// [WritableHandler]. It bounds the memory for a peer to which the server writes without being asked.
	WriteHardLimit int

	// The timeouts of all connections: none. See the functions of these names, with which
	// [Conn.SetTimeout] changes one connection's.
	IdleTimeout      time.Duration
	ReadIdleTimeout  time.Duration
	WriteIdleTimeout time.Duration
	ReadTimeout      time.Duration
	WriteTimeout     time.Duration

	// Workers is how many functions of [Conn.Go] run at a time, those of different connections in turn:
	// one of each connection.
	Workers int

	// WaitingMax is how many functions of Conn.Go may wait, of one connection, while it is read: 100.
	// Beyond that it isn't read until half as many wait. So a peer that sends requests faster than they are
	// worked off is held up, and no other. The functions' memory isn't counted: if each keeps a long
	// request, use a smaller number, or count the bytes and call [Conn.Pause]. Functions that aren't called
	// for what a peer sends aren't bounded.
	WaitingMax int

	// SlowCallback is the time from which on calls of the handler are logged, since all other connections
	// of the loop wait for them: a second. Without it calls of Data for the bytes of one read are timed
	// together ([Stats]).
	SlowCallback time.Duration

	// Log gets panics and slow calls: slog.Default().
	Log *slog.Logger
}

// TLS says how accepted connections speak TLS. Package reactortls makes it.
type TLS struct{ handshakes layer.Handshakes }

// The defaults. A connection that reads pipelined requests and answers them holds at most the
// first two of these, besides what its handler's last answer added.
const (
	readBufferMax     = 1 << 20
	highWaterMark     = 64 << 10
	hardLimit         = 16 << 20
	defaultWaitingMax = 100 // so many short functions keep a worker busy until the next are read
)

// timeouts returns c's timeouts by their kind.
func (c *Config) timeouts() [timeoutKinds]time.Duration {
	return [timeoutKinds]time.Duration{
		onIdle: c.IdleTimeout, onReadIdle: c.ReadIdleTimeout, onWriteIdle: c.WriteIdleTimeout,
		onMessage: c.ReadTimeout, onUnsent: c.WriteTimeout,
	}
}

// complete returns c with its defaults, or an error that names a field that makes no sense.
func (c Config) complete() (Config, error) {
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"ReadBufferMax", int64(c.ReadBufferMax)},
		{"WriteHighWaterMark", int64(c.WriteHighWaterMark)},
		{"WriteHardLimit", int64(c.WriteHardLimit)},
		{"IdleTimeout", int64(c.IdleTimeout)},
		{"ReadIdleTimeout", int64(c.ReadIdleTimeout)},
		{"WriteIdleTimeout", int64(c.WriteIdleTimeout)},
		{"ReadTimeout", int64(c.ReadTimeout)},
		{"WriteTimeout", int64(c.WriteTimeout)},
		{"Workers", int64(c.Workers)},
		{"WaitingMax", int64(c.WaitingMax)},
		{"SlowCallback", int64(c.SlowCallback)},
	} {
		if field.value < 0 {
			return c, fmt.Errorf("reactor: Config.%s is negative, %d: want 0, for the default, or more", field.name, field.value)
		}
	}
	c.ReadBufferMax = cmp.Or(c.ReadBufferMax, readBufferMax)
	c.WriteHighWaterMark = cmp.Or(c.WriteHighWaterMark, highWaterMark)
	c.WriteHardLimit = cmp.Or(c.WriteHardLimit, max(hardLimit, c.WriteHighWaterMark))
	c.WaitingMax = cmp.Or(c.WaitingMax, defaultWaitingMax)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.WriteHardLimit < c.WriteHighWaterMark {
		return c, fmt.Errorf("reactor: Config.WriteHardLimit is %d bytes; it must be WriteHighWaterMark, %d, at least",
			c.WriteHardLimit, c.WriteHighWaterMark)
	}
	if c.TLS != nil {
		return c, c.TLS.handshakes.Probe()
	}
	return c, nil
}
