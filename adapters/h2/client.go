package h2

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// A ClientConfig configures a Client. The zero value is ready to use: a field that is zero has the
// default that its comment names. It is copied.
type ClientConfig struct {
	// HeaderBytes and HeaderFields limit the fields of an answer's header and of its trailers: 64 KiB,
	// with 32 bytes for each besides its name and value, and 500. A stream is reset if its answer has
	// more, or if its interim answers have more in total and [Stream.OnInterim] doesn't take them.
	HeaderBytes  int
	HeaderFields int

	// StreamWindow is how many bytes of an answer's body the server may send ahead of Read: 1 MiB.
	// ConnWindow is the same for all streams of a connection together: 32 MiB, so that a few unread
	// bodies don't stop the others.
	StreamWindow int
	ConnWindow   int

	// CreditOnReceipt makes ConnWindow limit only bytes on their way: the server gets credit for the
	// connection as soon as bytes have come, so unread streams never hold up others. A connection then
	// holds up to StreamWindow for each of its streams.
	CreditOnReceipt bool

	// AnswerEnds makes Send and Write, even those already waiting, fail with ErrEnded once the whole
	// answer has come, as in gRPC. Otherwise the server may go on taking the request's body.
	AnswerEnds bool

	// FrameBytes is the longest frame that a server may send, and SendFrameBytes the longest that it
	// gets, if it allows more than 16 KiB: 16 KiB each.
	FrameBytes     int
	SendFrameBytes int

	// DecoderTableBytes and EncoderTableBytes limit the tables of header compression: 4 KiB and 1 KiB.
	// Negative: no table.
	DecoderTableBytes int
	EncoderTableBytes int

	// BeginTimeout is how long the server may take to send its first SETTINGS: 10 s.
	BeginTimeout time.Duration

	// IdleTimeout is how long a connection without streams is kept: no limit.
	IdleTimeout time.Duration

	// WriteTimeout is how long the server may take nothing of what is sent to it, as in [Config]: 30 s.
	// Negative: no limit.
	WriteTimeout time.Duration

	// PingAfter, if not 0, is how long a connection with streams may be silent before it is tested with a
	// PING, which must be answered within PingTimeout: 15 s. PingIdle extends that to connections without
	// streams.
	PingAfter   time.Duration
	PingTimeout time.Duration
	PingIdle    bool

	// PingResets makes streams that were reset with Cancel count as open for Quota, until the server has
	// answered a PING sent after the first of them. So calls leave a connection whose server has gone
	// silent, as with net/http. A stream doesn't count if HEADERS or DATA of any stream have come since
	// it was opened, or if none have come since the last PING was answered: gRPC's servers close
	// connections that send more PINGs than that.
	PingResets bool

	// Reserve makes Attach reserve a stream: see [Conn.Reserve].
	Reserve bool

	// State, if not nil, is called when the state of a connection changes, one change at a time: Ready,
	// then Active and Idle in turn, with Roomy in between, Leaving, and at the end Closed. It must not
	// block.
	State func(c *Conn, s ConnState)

	// Log gets the panics of State: slog.Default().
	Log *slog.Logger
}

// clientConnWindow is the default of ClientConfig.ConnWindow.
const clientConnWindow = 32 << 20

// config returns the configuration of the connections.
func (c *ClientConfig) config() Config {
	to := Config{
		HeaderBytes: c.HeaderBytes, HeaderFields: c.HeaderFields,
		StreamWindow: c.StreamWindow, ConnWindow: c.ConnWindow,
		FrameBytes: c.FrameBytes, SendFrameBytes: c.SendFrameBytes,
		DecoderTableBytes: c.DecoderTableBytes, EncoderTableBytes: c.EncoderTableBytes,
		BeginTimeout: c.BeginTimeout, IdleTimeout: c.IdleTimeout, WriteTimeout: c.WriteTimeout,
		PingAfter: c.PingAfter, PingTimeout: c.PingTimeout, Log: c.Log,
		pingIdle: c.PingIdle, creditOnReceipt: c.CreditOnReceipt, pingResets: c.PingResets, answerEnds: c.AnswerEnds,
		reserve: c.Reserve,
	}
	if to.ConnWindow == 0 {
		to.ConnWindow = clientConnWindow
	}
	if to.IdleTimeout == 0 {
		to.IdleTimeout = -1
	}
	return to
}

// A Client has connections on which this side opens the streams. Make it with NewClient. All methods
// are safe for concurrent use, and only Drain blocks.
//
//	client := h2.NewClient(h2.ClientConfig{})
//	conn, err := client.Attach(nc, nil)
//	...
//	var s h2.Stream
//	err = conn.Open(ctx, &s, &h2.Request{Method: "GET", Scheme: "http", Authority: "example.com", Path: "/"}, h2.Message{End: true})
//	...
//	defer s.Close()
//	answer, err := s.Answer()
//	...
//	body, err := io.ReadAll(&s)
//
// The caller's goroutine opens and writes a stream. A goroutine of a pool reads for all streams, and
// hands each what comes for it. A connection that waits holds neither a goroutine nor a buffer.
type Client struct{ conns *Server } // a Server without listeners and handlers

// NewClient makes a client. It panics if a field of config is negative, unless its comment gives that
// a meaning.
func NewClient(config ClientConfig) *Client {
	to := config.config()
	if err := to.check(); err != nil {
		panic("h2: NewClient: " + err.Error())
	}
	s := newServer(to, clientSide{})
	s.states = config.State
	return &Client{s}
}

// Attach gives the client a connection to a server that speaks HTTP/2. nc is a *percore.Conn, as a
// percore.Dialer makes it, or a *tls.Conn above one, after the handshake, or any other connection, for
// which a goroutine reads. From then on the client owns it. The Conn's User returns user.
func (cl *Client) Attach(nc net.Conn, user any) (*Conn, error) {
	return cl.conns.Attach(nc, nil, user)
}

// Stats returns the metrics of the client.
func (cl *Client) Stats() ClientStats { return sums(cl.conns.counters.Sums()).clientStats() }

// Close closes all connections at once. Streams that are open end.
func (cl *Client) Close() error { return cl.conns.Close() }

// Drain lets all connections end, as [Conn.GoAway] does, and waits for their streams. It returns nil
// when no connection is left, or ctx's error when ctx is done.
func (cl *Client) Drain(ctx context.Context) error { return cl.conns.Drain(ctx) }
