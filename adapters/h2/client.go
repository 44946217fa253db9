package h2

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// A ClientConfig configures a Client. The zero value is ready: each field that is zero has the default
// that its comment names. It is copied.
type ClientConfig struct {
	// HeaderBytes and HeaderFields limit the fields of an answer's header and of its trailers: 64 KiB,
	// with 32 bytes for each besides its name and value, and 500. A stream whose answer has more is reset,
	// and so is one whose interim answers have more together, unless [Stream.OnInterim] takes them.
	HeaderBytes  int
	HeaderFields int

	// StreamWindow is how many bytes of an answer's body the server may send ahead of Read: 1 MiB.
	// ConnWindow is the same for all streams of a connection together: 32 MiB, so that some bodies that
	// are not read don't stop the others.
	StreamWindow int
	ConnWindow   int

	// CreditOnReceipt makes ConnWindow limit what is under way instead: the server gets credit for the
	// connection when bytes have come, so streams that are not read never hold up others. A connection
	// then holds up to StreamWindow for each of its streams.
	CreditOnReceipt bool

	// AnswerEnds makes Send and Write fail with ErrEnded once the whole answer has come, even those that
	// wait, as gRPC has it. Otherwise the server may go on to take the request's body.
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

	// PingAfter, if not 0, is how long a connection with streams may be silent before it is tested with
	// a PING, which must be answered within PingTimeout: 15 s. With PingIdle that goes for connections
	// without streams, too.
	PingAfter   time.Duration
	PingTimeout time.Duration
	PingIdle    bool

	// PingResets makes streams that are reset with Cancel count as open, as far as Room goes, until the
	// server has answered a PING behind the first of them. So calls leave a connection whose server has
	// gone silent, as with net/http. A stream doesn't count if HEADERS or DATA of any have come since it
	// was opened, or if none have since the last PING was answered: gRPC's servers close connections that
	// send more PINGs than that.
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
		reserve: c.Reserve, tellsRule: true,
	}
	if to.ConnWindow == 0 {
		to.ConnWindow = clientConnWindow
	}
	if to.IdleTimeout == 0 {
		to.IdleTimeout = -1
	}
	return to
}

// A Client has connections on which this side opens the streams. Make it with NewClient. All methods are
// safe for concurrent use, and none blocks.
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
// A stream is opened and written by its caller's goroutine, and what comes for it is handed to it by a
// goroutine of a pool, which reads for all. A connection that waits holds neither a goroutine nor a
// buffer.
type Client struct{ conns *Server } // a Server without listeners and handlers

// NewClient makes a client. It panics if a field of config is negative whose comment gives that no
// meaning.
func NewClient(config ClientConfig) *Client {
	to := config.config()
	if err := to.check(); err != nil {
		panic("h2: NewClient: " + err.Error())
	}
	s := newServer(to, clientSide{})
	if config.State != nil {
		s.states = stateFunc(config.State)
	}
	return &Client{s}
}

// stateFunc is ClientConfig.State as a ConnHandler.
type stateFunc func(c *Conn, s ConnState)

func (f stateFunc) ConnState(c *Conn, s ConnState)           { f(c, s) }
func (f stateFunc) Accept(_ *Conn, _ *Request) StreamHandler { return nil }

// Attach gives the client a connection to a server that speaks HTTP/2. nc is a *percore.Conn, as a
// percore.Dialer makes it, or a *tls.Conn above one, after the handshake, or any other connection, which
// is read from by a goroutine. From then on the client owns it. user is what the Conn's User returns.
func (cl *Client) Attach(nc net.Conn, user any) (*Conn, error) {
	c, err := cl.conns.Attach(nc, nil, user)
	switch {
	case errors.Is(err, ErrServerClosed):
		return nil, errClientClosed
	case err != nil:
		return nil, err
	}
	c.mu.Lock()
	defer c.unlock()
	c.flushSoonLocked() // the preface
	return c, nil
}

// Stats returns the metrics of the client.
func (cl *Client) Stats() ClientStats { return sums(cl.conns.counters.Sums()).clientStats() }

// Close closes all connections at once. Streams that are open end.
func (cl *Client) Close() error { return cl.conns.Close() }

// Drain lets all connections end: see [Conn.Drain].
func (cl *Client) Drain() { cl.conns.Drain() }

// An Answer is the header of an answer.
type Answer struct {
	Status int

	// Fields are all fields but :status, in the order in which they came. They stay valid.
	Fields []Field

	// End says that there is neither a body nor trailers.
	End bool
}

// clientPart is what only a stream of a client has.
type clientPart struct {
	extras  extras // of the stream
	cond    cond
	answer  Answer
	interim func(status int, fields []Field)
	ignored int      // bytes of interim answers, if interim is nil
	awaited int      // AwaitEnd waits, and so many bytes of the body end that, too; 0: it doesn't
	memory  [4]Field // of a short header, with the trailers behind it
	used    uint8    // of memory
	late    bool     // the deadline of the answer has passed before it
	heard   uint16   // the connection's, when the stream was opened

	dropped bool // bytes of it were dropped since; guarded by the stream's reading
}

var clientParts = sync.Pool{New: func() any { return new(clientPart) }}

// makeClientPart gives a stream that is new what a client's has besides.
func makeClientPart(s *Stream) *clientPart {
	if s.extras == nil {
		p := clientParts.Get().(*clientPart)
		p.extras.client, p.extras.stream = p, s
		s.extras = &p.extras
	}
	return s.extras.client
}

// awaits reports whether the goroutine that waits needs more than so many bytes. p may be nil.
func (p *clientPart) awaits(bytes int) bool { return p != nil && bytes < p.awaited }

// keepTrailers takes the trailers.
func (x *extras) keepTrailers(fields []Field) {
	if x.client != nil {
		x.trailers = x.client.keep(fields)
	} else {
		x.trailers = append([]Field(nil), fields...)
	}
}

// keep returns a copy of fields.
func (p *clientPart) keep(fields []Field) []Field {
	if len(fields) > len(p.memory)-int(p.used) {
		return append([]Field(nil), fields...)
	}
	first, last := p.used, p.used+uint8(len(fields))
	p.used = last
	to := p.memory[first:last:last]
	copy(to, fields)
	return to
}

// errNoClient is for a server's stream.
var errNoClient = errors.New("h2: Answer was called for a stream that no client has opened")

// Answer waits for the header of the answer. Its errors are those of Read.
func (s *Stream) Answer() (Answer, error) {
	for s.lockUnlessWhole() {
		if answer, err := s.answerLocked(); err != nil || answer.Status != 0 {
			s.conn.unlock()
			return answer, err
		}
		s.leaveLocked()
	}
	return s.extras.client.answer, nil
}

// answerLocked returns the header of the answer, or nothing if it may still come.
func (s *Stream) answerLocked() (Answer, error) {
	switch x := s.extras; {
	case x == nil || x.client == nil:
		return Answer{}, errNoClient
	case x.client.late:
		return Answer{}, errDeadline
	case x.client.answer.Status != 0:
		return x.client.answer, nil
	}
	switch {
	case s.stage == served:
		return Answer{}, ErrEnded
	case s.err != nil:
		return Answer{}, s.err
	case errors.Is(s.readErr, os.ErrDeadlineExceeded):
		return Answer{}, s.readErr
	}
	return Answer{}, nil
}

// SetAnswerDeadline sets the time after which Answer fails permanently with os.ErrDeadlineExceeded, if
// the answer's header has not come by then. A later time means nothing. It takes the place of
// SetReadDeadline's deadline, and the other way round. The zero time removes it.
func (s *Stream) SetAnswerDeadline(t time.Time) error {
	return s.setDeadline(t, func(x *extras) *Timer { return &x.read }, func(s *Stream) {
		if x := s.extras; x.client != nil && x.client.answer.Status == 0 {
			x.client.late = true
			s.wakeLocked()
		}
	})
}

// OnInterim makes f be called with each interim answer that comes from now on, before Answer returns. To
// see all of them, call it before Open. f must not block, nor call methods of s that do: it holds up the
// connection's other streams. fields are valid until it returns. A server's stream has none.
func (s *Stream) OnInterim(f func(status int, fields []Field)) {
	if s.conn == nil {
		makeClientPart(s).interim = f
		return
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.extras != nil && s.extras.client != nil {
		s.extras.client.interim = f
	}
}

// AwaitEnd waits until the answer has come to its end, so that neither Answer nor Read wait, or until
// most bytes of its body are there, or the stream has ended early. For a short answer that is cheaper
// than to wait for its parts.
func (s *Stream) AwaitEnd(most int) {
	most = max(most, 1)
	for s.lockUnlessWhole() {
		if s.extras == nil || s.extras.client == nil {
			s.conn.unlock()
			return
		}
		p := s.extras.client
		if s.readErr != nil || s.err != nil || s.stage == served || p.late || s.unread.bytes() >= most {
			p.awaited = 0
			s.conn.unlock()
			return
		}
		p.awaited = most
		s.leaveLocked()
	}
}

// Close ends a stream of a client, unless it has ended: it is reset with Cancel, or with NoError if the
// answer has come to its end. Bytes that are not
// read are dropped. All calls fail afterwards. Without it the memory of what was not read is lost, and
// so is the server's credit for it.
func (s *Stream) Close() {
	c := s.conn
	if c == nil {
		return // it was not opened
	}
	if !s.lockUnlessWhole() {
		s.dropWhole()
		return
	}
	defer c.unlock()
	if s.stage == served {
		return
	}
	if !s.core.Ended() {
		code := Cancel
		if s.core.ReadEnded() {
			code = NoError // the server has answered, and wants no more: proxies count the others as failures
		}
		s.resetLocked(code, nil)
		c.flushSoonLocked()
	}
	s.stage = served
	if n := s.unread.drop(); n > 0 && c.phase == alive {
		c.core.Discarded(&s.core, n)
	}
	s.unqueueLocked()
	s.wakeLocked()
	s.extras.stop()
}

// Release is Close for a stream that no other goroutine knows. If it reports true the memory that the
// stream has taken serves others: the Fields of its Answer and its Trailers are not valid any more, and
// s may be used for another Open once it is the zero Stream again. Otherwise the connection or a
// deadline may be about to touch s, or it has not ended well: leave it to the garbage collector.
func (s *Stream) Release() bool {
	s.Close()
	if !s.whole.Load() || s.cond.due.Load() {
		return false
	}
	p := s.extras.client
	if p.extras.read != nil || p.extras.write != nil {
		return false
	}
	*p = clientPart{}
	clientParts.Put(p)
	return true
}

// Answered reports whether the server has answered a request on a client's connection.
func (c *Conn) Answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// Err returns why the connection has ended, or is about to end: a [*ConnError], or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return c.err
}
