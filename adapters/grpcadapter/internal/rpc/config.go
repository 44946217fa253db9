package rpc

import (
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/shared/drain"
)

// A Config holds the options of a server. Only DefaultConfig sets defaults.
type Config struct {
	Unary   []grpc.UnaryServerInterceptor  // the first is the outermost
	Stream  []grpc.StreamServerInterceptor // the same
	Stats   []stats.Handler                // they are called in their order
	Tap     tap.ServerInHandle             // nil: none
	Codec   Codec                          // for all calls; nil: as the call's content-type says
	Unknown *grpc.StreamDesc               // serves what is not registered; nil: Unimplemented
	Pool    mem.BufferPool

	RecvBytesMax, SendBytesMax int // of a message

	Creds           credentials.TransportCredentials // nil: none
	BeginTimeout    time.Duration                    // for a handshake and the client's first frames
	Keepalive       keepalive.ServerParameters
	Pings           keepalive.EnforcementPolicy
	Streams         uint32 // of a connection
	HeaderBytes     uint32 // of a request
	StreamWindow    int32
	ConnWindow      int32
	TableBytes      *uint32 // of header compression, for what the client sends
	WaitForHandlers bool    // Stop waits until all have returned

	DetachInterceptors bool // a call may go on when Stream has returned

	Work *Work // nil: any number of methods run at a time

	Hidden bool // its counters are not added to the process's

	// The functions below are for a server that stands in for a grpc.Server. nil: nothing.

	// ConnValue returns a further value of the context of a connection, which is the parent of its calls'
	// contexts; nil: none. raw is the connection as it was accepted, or nil if it is an http.Server's.
	ConnValue func(raw net.Conn, key any) any

	// StreamValue returns what the context of a call has as its grpc.ServerTransportStream.
	StreamValue func(*TransportStream) any

	// CallValue returns the value for a key in the context of a call, and whether there is a value.
	CallValue func(t *TransportStream, key any) (any, bool)

	// Prepared returns what a *grpc.PreparedMsg has encoded.
	Prepared func(*grpc.PreparedMsg) (mem.BufferSlice, bool)

	// Drain and GracefulStop call Drains. DefaultConfig makes them.
	Drains *drain.Hooks

	// Unused is called, without locks held, when the last listener and the last connection are gone.
	Unused func()
}

const (
	forever = time.Duration(math.MaxInt64) // grpc-go's infinity

	// StreamWindow is how much a client may send ahead of the handler, on one stream. grpc-go
	// begins with 64 KiB and goes up to 16 MiB as the network needs it.
	streamWindow = 256 << 10

	// resets is how many calls a client may cancel at once before new ones are refused. A program may
	// end thousands of watches.
	resets = 20_000

	// The header of a request may have so many bytes and fields. grpc-go allows 16 MiB, and any number.
	// Clients of gRPC's C core and of Java take 8 KiB by default.
	headerBytes  = 1 << 20
	headerFields = 5000
)

// DefaultConfig returns grpc-go's defaults, as far as it has any.
func DefaultConfig() Config {
	return Config{
		RecvBytesMax: 4 << 20,
		SendBytesMax: math.MaxInt32,
		BeginTimeout: 120 * time.Second,
		Streams:      math.MaxUint32,
		HeaderBytes:  headerBytes,
		StreamWindow: streamWindow,
		ConnWindow:   math.MaxInt32, // what one handler doesn't read must not stop the others
		Pool:         mem.DefaultBufferPool(),
		Drains:       new(drain.Hooks),
	}
}

// http returns the configuration of the HTTP/2 server.
func (c *Config) http() h2.Config {
	k := c.Keepalive
	to := h2.Config{
		Streams:          int(min(c.Streams, math.MaxInt32)),
		RetryStreams:     true,
		AnyTarget:        true,
		IgnoreGoAway:     true,
		IgnoreIdleResets: true,
		HeaderBytes:      int(min(c.HeaderBytes, math.MaxInt32)),
		HeaderFields:     headerFields,
		StreamWindow:     int(c.StreamWindow),
		ConnWindow:       int(c.ConnWindow),
		BeginTimeout:     max(c.BeginTimeout, 1),
		IdleTimeout:      unless(k.MaxConnectionIdle, -1),
		MaxAge:           unless(k.MaxConnectionAge, 0),
		AgeGrace:         unless(k.MaxConnectionAgeGrace, 0),
		PingAfter:        2 * time.Hour,
		PingTimeout:      20 * time.Second,
		DrainTime:        5 * time.Second, // grpc-go's since 1.85; before, a minute
		Resets:           resets,
		Explain:          true,
		Crash:            true,
		Unused:           c.Unused,
	}
	switch {
	case k.Time == forever:
		to.PingAfter = 0
	case k.Time > 0:
		to.PingAfter = k.Time
	}
	if k.Timeout > 0 {
		to.PingTimeout = k.Timeout
	}
	if c.TableBytes != nil {
		if to.DecoderTableBytes = int(min(*c.TableBytes, math.MaxInt32)); to.DecoderTableBytes == 0 {
			to.DecoderTableBytes = -1
		}
	}
	return to
}

// unless returns d, or never if d is not a limit.
func unless(d, never time.Duration) time.Duration {
	if d <= 0 || d == forever {
		return never
	}
	return d
}
