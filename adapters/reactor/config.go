package reactor

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/percore/percore/adapters/reactor/internal/layer"
)

// A Config configures a Server. The zero value is ready to use: a field that is zero has the default
// that its comment names. It is copied.
type Config struct {
	// TLS, if not nil, makes accepted connections speak TLS. Package reactortls makes it. It doesn't
	// affect connections that the program gives to [Server.Attach].
	TLS *TLS

	// LoopHandler, if not nil, gives each loop a handler of its own, so that connections of one loop
	// share state without a lock. It is called once per loop, before the loop's first connection, with 0,
	// 1, and so on; the server's own handler may then be nil. It must not call the server, which waits
	// for it. Loops of the server's listeners count, and so do loops on which connections for Attach were
	// dialed or accepted. When a loop has ended, because nothing was on it any more, the next loop takes
	// over its number and its handler.
	LoopHandler func(loop int) Handler

	// ReadBufferMax is how many unused bytes are kept, which limits the length of a message that Data
	// waits for: 1 MiB.
	ReadBufferMax int

	// WriteHighWaterMark is how many written bytes may wait for the peer before reading pauses: 64 KiB.
	// Reading goes on when fewer than half as many wait. So a peer that sends requests but does not read
	// the answers is held up, and memory doesn't grow.
	WriteHighWaterMark int

	// WriteHardLimit is how many written bytes may wait for the peer at all: 16 MiB, or
	// WriteHighWaterMark if that is more. Only a single Write when none wait may have more. A Write
	// beyond the limit fails with [ErrWriteBufferFull], and ends the connection unless the handler is a
	// [WritableHandler]. It bounds the memory for a peer to which the server writes unasked.
	WriteHardLimit int

	// The timeouts of all connections: none. The functions of the same names describe them, and change
	// them for one connection with [Conn.SetTimeout].
	IdleTimeout      time.Duration
	ReadIdleTimeout  time.Duration
	WriteIdleTimeout time.Duration
	ReadTimeout      time.Duration
	WriteTimeout     time.Duration

	// Workers is how many functions of [Conn.Go] run at a time, at most one for each connection;
	// connections take turns.
	Workers int

	// WaitingMax is how many functions of Conn.Go may wait, for one connection, while it is still read:
	// 100. Beyond that the connection isn't read until half as many wait. So only a peer that sends
	// requests faster than they are handled is held up. The memory of the functions isn't counted: if
	// each keeps a long request, use a smaller number, or count the bytes and call [Conn.Pause].
	// Functions that have nothing to do with what a peer sends aren't bounded.
	WaitingMax int

	// SlowCallback is how long a call of the handler may take before it is logged, since all other
	// connections of the loop wait for it: a second. If it isn't set, calls of Data for the bytes of one
	// read are timed together ([Stats]).
	SlowCallback time.Duration

	// Log gets panics and slow calls: slog.Default().
	Log *slog.Logger
}

// TLS says how accepted connections speak TLS. Package reactortls makes it.
type TLS struct{ handshakes layer.Handshakes }

// The defaults. A connection that answers pipelined requests holds at most the first two of these, and
// the last answer.
const (
	readBufferMax     = 1 << 20
	highWaterMark     = 64 << 10
	hardLimit         = 16 << 20
	defaultWaitingMax = 100 // so many short functions keep a worker busy until the next are read
)

func (c *Config) timeouts() [timeoutKinds]time.Duration {
	return [timeoutKinds]time.Duration{
		onIdle: c.IdleTimeout, onReadIdle: c.ReadIdleTimeout, onWriteIdle: c.WriteIdleTimeout,
		onMessage: c.ReadTimeout, onUnsent: c.WriteTimeout,
	}
}

// complete returns c with its defaults, or an error that names a field that makes no sense.
func (c Config) complete() (Config, error) {
	for field, value := range reflect.ValueOf(c).Fields() {
		if value.CanInt() && value.Int() < 0 {
			return c, fmt.Errorf("reactor: Config.%s is negative, %d: want 0, for the default, or more", field.Name, value.Int())
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
	if c.TLS == nil {
		return c, nil
	}
	return c, cmp.Or(c.TLS.handshakes.Err, checkTLS())
}

// checkTLS returns why the loops can't read from a *tls.Conn, or nil.
func checkTLS() error {
	if err := layer.Check(); err != nil {
		return fmt.Errorf("reactortls: crypto/tls does not read as the loops need it, serve it with a "+
			"goroutine per connection: %w", err)
	}
	return nil
}
