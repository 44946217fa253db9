package h2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/http2/hpack"
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
	s := newServer(to, true)
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

var errClientClosed = fmt.Errorf("h2: the client is closed: %w", net.ErrClosed)

// Close closes all connections at once. Streams that are open end.
func (cl *Client) Close() error { return cl.conns.Close() }

// Drain lets all connections end: see [Conn.Drain].
func (cl *Client) Drain() { cl.conns.Drain() }

// Errors of Open: nothing was sent, and the call may be made on another connection.
var (
	// ErrLeaving is for a connection on which no more streams can be opened: it has ended, or the server
	// has hung up, or either side has sent GOAWAY, or all numbers of streams are used up.
	ErrLeaving = errors.New("h2: the connection takes no more streams")

	// ErrNoRoom is for a connection whose Room is 0, and no ctx to wait with.
	ErrNoRoom = http2.ErrNoRoom
)

// ErrUnserved is what a StreamError of a client wraps if the server's GOAWAY says that it has not served
// the stream and won't: the request may be sent again on another connection.
var ErrUnserved = errors.New("h2: the server goes away, and has not served the stream")

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
	cond    sync.Cond
	answer  Answer
	late    bool // the deadline of the answer has passed before it
	interim func(status int, fields []Field)
	ignored int      // bytes of interim answers, if interim is nil
	heard   uint16   // the connection's, when the stream was opened
	awaited int      // AwaitEnd waits, and so many bytes of the body end that, too; 0: it doesn't
	memory  [4]Field // of a short header, with the trailers behind it
	used    int      // of memory

	whole   atomic.Bool // see wholeLocked
	dropped bool        // bytes of it were dropped since; guarded by the stream's reading
}

// makeClientPart gives a stream that is new what a client's has besides.
func (s *Stream) makeClientPart() *clientPart {
	if s.extras == nil {
		p := new(clientPart)
		p.extras.client, p.extras.stream = p, s
		s.extras = &p.extras
	}
	return s.extras.client
}

// keep returns a copy of fields.
func (p *clientPart) keep(fields []Field) []Field {
	if len(fields) > len(p.memory)-p.used {
		return append([]Field(nil), fields...)
	}
	to := p.memory[p.used : p.used+len(fields) : p.used+len(fields)]
	p.used += copy(to, fields)
	return to
}

// wholeLocked looks whether a client's stream has ended well. Then nothing of it changes any more, and
// what has come belongs to the goroutine that holds reading: conn.mu, which all callers of a connection
// want, isn't needed to read it.
func (s *Stream) wholeLocked() {
	if !s.conn.server.client || s.served || s.err != nil || s.readErr != io.EOF || !s.core.Ended() {
		return
	}
	if x := s.extras; x.client.answer.Status != 0 && !x.client.late {
		x.stop()
		x.client.whole.Store(true)
	}
}

// isWhole reports whether wholeLocked has found that.
func (s *Stream) isWhole() bool { return s.conn.server.client && s.extras.client.whole.Load() }

// lockUnlessWhole locks conn.mu, or reports false if the stream is whole: then reading has to be locked.
func (s *Stream) lockUnlessWhole() bool {
	if s.isWhole() {
		return false
	}
	s.conn.mu.Lock()
	if s.isWhole() {
		s.conn.mu.Unlock()
		return false
	}
	return true
}

// dropWhole drops what was not read of a stream that is whole.
func (s *Stream) dropWhole() {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.dropBodyLocked() > 0 {
		s.extras.client.dropped = true
	}
}

// trailersLocked takes the trailers.
func (s *Stream) trailersLocked(fields []Field) {
	if x := s.makeExtrasLocked(); x.client != nil {
		x.trailers = x.client.keep(fields)
	} else {
		x.trailers = append([]Field(nil), fields...)
	}
}

// An opener is a call of Open that waits for room.
type opener struct {
	granted chan struct{} // closed when there is room, which is kept for it, or won't be any more
	has     bool          // it was granted
}

// Room returns how many streams can be opened now, or 0 if bodies that are not read have taken most of
// ConnWindow: the answers of more streams might wait for their readers.
func (c *Conn) Room() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isChokedLocked() {
		return 0
	}
	return c.roomLocked()
}

// Reserve reserves a stream on a client's connection, which is not idle from then on: neither
// IdleTimeout nor DrainIfIdle ends it. It reports false if Room is 0. Once that has changed State is
// called with Roomy, or with Leaving. The next Open that succeeds uses the reservation up, so all
// streams of a connection should have one, or none. A call that doesn't open its stream must call
// Unreserve.
func (c *Conn) Reserve() bool {
	c.mu.Lock()
	defer c.mu.Unlock() // nothing has changed that others wait for
	if c.isRoomyLocked() {
		c.makeWaiting().reserved++
		return true
	}
	c.makeWaiting().roomless = true
	return false
}

// Unreserve gives up a reservation that Open has not used. It does not block.
func (c *Conn) Unreserve() {
	c.mu.Lock()
	defer c.unlock()
	if c.unreserveLocked(); c.reservedLocked() == 0 {
		c.setAlarmLocked() // IdleTimeout counts again
	}
}

// Reserved returns how many reservations Open has not used.
func (c *Conn) Reserved() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reservedLocked()
}

func (c *Conn) reservedLocked() int {
	if c.waiting == nil {
		return 0
	}
	return c.waiting.reserved
}

func (c *Conn) unreserveLocked() {
	if c.reservedLocked() > 0 {
		c.waiting.reserved--
	}
}

// isRoomyLocked reports whether a stream can be reserved.
func (c *Conn) isRoomyLocked() bool {
	return c.roomLocked() > 0 && !c.isChokedLocked() && (c.waiting == nil || len(c.waiting.openers) == 0)
}

// isChokedLocked reports whether bodies that are not read have taken three quarters of ConnWindow.
func (c *Conn) isChokedLocked() bool {
	return c.core.Held() > int(c.server.limits.ConnWindowBytes)/4*3
}

// roomLocked leaves out what is reserved, and what is kept for calls of Open that have waited.
func (c *Conn) roomLocked() int {
	if !c.takesStreamsLocked() {
		return 0
	}
	room := c.core.Room()
	if c.waiting != nil {
		room -= c.waiting.granted + c.waiting.reserved
	}
	if end := c.clock.ends; end != nil {
		room -= end.resets
	}
	return max(0, room)
}

// heardLocked notes a frame that the server has sent on a stream.
func (c *Conn) heardLocked() {
	c.heard++
	if end := c.clock.ends; end != nil {
		end.ponged = false
	}
}

// countResetLocked is for a stream that is reset before its end: see ClientConfig.PingResets.
func (c *Conn) countResetLocked(s *Stream) {
	if !c.server.config.pingResets || s.extras.client.heard != c.heard || !c.takesStreamsLocked() {
		return
	}
	end := c.clock.makeEnding()
	if end.ponged {
		return
	}
	if end.resets++; end.resets == 1 {
		c.core.Ping(resetPing)
	}
}

// TakesStreams reports whether more streams can be opened, now or when others have ended.
func (c *Conn) TakesStreams() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takesStreamsLocked()
}

func (c *Conn) takesStreamsLocked() bool {
	return c.server.client && c.phase == alive && !c.isCutLocked() && !c.hasHungUpLocked() && c.core.TakesStreams()
}

// hasHungUpLocked reports whether lookLocked has seen the server's end.
func (c *Conn) hasHungUpLocked() bool { return c.clock.ends != nil && c.clock.ends.hungUp }

// lookLocked looks for the server's end before the first stream of a while is opened. Servers hang up
// without GOAWAY right behind an answer, or when they have waited for long enough, and a stream that is
// sent to one may not be tried again. The reader, which is about to find that, takes what came before
// the end. lookLocked releases mu while it asks the kernel.
func (c *Conn) lookLocked() {
	if c.open > 0 || !c.takesStreamsLocked() {
		return // other streams would be lost as well
	}
	c.mu.Unlock()
	hungUp := c.below.hungUp()
	c.mu.Lock()
	if hungUp && c.takesStreamsLocked() {
		c.clock.makeEnding().hungUp = true
		c.changedLocked(Leaving)
	}
}

// Open opens a stream on a client's connection: it sends the header of a request, the pseudo-header
// fields of r that are not empty, :authority also if HasAuthority is set, and r.Fields, and then what
// m has, whose Status and Fields are not used. s must be new, and must be closed in the end: see
// [Stream.Close]. Neither r nor m are kept.
//
// If the connection has as many streams as the server allows Open waits, until ctx ends; with a nil
// ctx, or a reservation, it returns ErrNoRoom. After that it waits as Send does if m has a body, but
// not for ctx. Its errors are ErrLeaving, ErrNoRoom, ctx's, one about a field that is not valid, and
// those of Send. With the last the stream was opened.
func (c *Conn) Open(ctx context.Context, s *Stream, r *Request, m Message) error {
	switch {
	case s == nil:
		return errNil("Open", "*Stream")
	case r == nil:
		return errNil("Open", "*Request")
	}
	if err := r.check(); err != nil {
		return err
	}
	m.Status, m.Fields = 0, r.Fields
	if err := m.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.unlock()
	c.lookLocked()
	if err := c.awaitOpenLocked(ctx); err != nil {
		return err
	}
	s.conn, s.core.User = c, s
	part := s.makeClientPart()
	part.heard = c.heard
	part.cond.L, s.cond = &c.mu, &part.cond
	c.lendLocked()
	bare := len(m.Body) == 0 && m.Trailers == nil
	if err := c.core.Begin(&s.core, r.core(), r.Fields, bare && m.End); err != nil {
		s.conn, s.cond = nil, nil
		return err
	}
	c.unreserveLocked()
	c.workers.counts.Add(countStreams, 1)
	if c.open++; c.open == 1 {
		c.workers.counts.Add(countActive, 1)
		c.clock.quietAt = 0
		if c.server.config.PingAfter > 0 {
			c.clock.heardAt = c.below.now() // silence counts from here
			c.setAlarmLocked()
		}
		c.changedLocked(Active)
	}
	m.Fields = nil
	if !bare {
		if err := s.sendLocked(&m); err != nil {
			return err
		}
	}
	if !m.Hold {
		c.flushLocked(s)
	}
	return nil
}

// core returns what the core needs of a request.
func (r *Request) core() *http2.Request {
	to := &http2.Request{Method: r.Method, Scheme: r.Scheme, Authority: r.Authority, Path: r.Path, Protocol: r.Protocol}
	if r.HasAuthority {
		to.AddAuthority()
	}
	return to
}

// check returns an error if a pseudo-header field must not be sent.
func (r *Request) check() error {
	for _, f := range [...]struct{ name, value string }{
		{":method", r.Method}, {":scheme", r.Scheme}, {":authority", r.Authority}, {":path", r.Path}, {":protocol", r.Protocol},
	} {
		if !hpack.ValidValue(f.value) {
			return fmt.Errorf("h2: the field %s must not be sent: its value is not valid", f.name)
		}
	}
	return nil
}

// awaitOpenLocked waits until a stream may be opened. It releases mu while it waits. Calls that have
// come first go first.
func (c *Conn) awaitOpenLocked(ctx context.Context) error {
	switch {
	case !c.takesStreamsLocked():
		return ErrLeaving
	case c.reservedLocked() > 0 && c.core.Room() == 0: // the server has lowered its limit since
		return ErrNoRoom
	case c.reservedLocked() > 0:
		return nil
	case ctx == nil && c.isChokedLocked():
		return ErrNoRoom
	case c.roomLocked() > 0 && (c.waiting == nil || len(c.waiting.openers) == 0):
		return nil
	case ctx == nil:
		return ErrNoRoom
	}
	o := &opener{granted: make(chan struct{})}
	w := c.makeWaiting()
	w.openers = append(w.openers, o)
	c.workers.counts.Add(countStalls, 1)
	c.unlock()
	select {
	case <-o.granted:
	case <-ctx.Done():
	}
	c.mu.Lock()
	if o.has {
		c.waiting.granted--
	} else {
		c.waiting.leave(o)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !c.takesStreamsLocked():
		return ErrLeaving
	case c.core.Room() == 0: // the server has lowered its limit since
		return c.awaitOpenLocked(ctx)
	}
	return nil
}

// makeWaiting returns waiting, after making it if it is nil.
func (c *Conn) makeWaiting() *waiting {
	if c.waiting == nil {
		c.waiting = new(waiting)
	}
	return c.waiting
}

// leave takes out an opener that was not granted.
func (w *waiting) leave(o *opener) {
	w.openers = slices.DeleteFunc(w.openers, func(at *opener) bool { return at == o })
}

// settleLocked is for a client's connection of which streams may have ended, or whose room may have
// changed: unlock calls it.
func (c *Conn) settleLocked() {
	n := int32(c.core.Streams())
	if c.phase != alive {
		n = 0 // they have ended, though the core has them still
	}
	if ended := c.open - n; ended > 0 {
		c.workers.counts.Add(countServed, int64(ended)) // or lost: see ClientStats
		if c.open = n; n == 0 {
			c.quietLocked()
		}
	}
	switch {
	case c.open > 0 || c.phase != alive:
	case c.isCutLocked():
		c.giveUpLocked()
	case c.core.Leaving():
		c.hangUpIfDoneLocked()
	case !c.core.TakesStreams():
		c.leaveLocked()
	}
	w := c.waiting
	if w == nil {
		return
	}
	if w.roomless && c.isRoomyLocked() {
		w.roomless = false
		c.changedLocked(Roomy)
	}
	for len(w.openers) > 0 && (c.roomLocked() > 0 || !c.takesStreamsLocked()) {
		o := w.openers[0]
		w.openers = w.openers[1:]
		o.has = true
		w.granted++
		close(o.granted)
	}
}

// answerLocked takes the header of an answer.
func (s *Stream) answerLocked(t *turn) {
	ev, c := &t.event, s.conn
	x := s.extras
	if ev.Status < 200 {
		if f := x.client.interim; f != nil {
			c.unlock()
			c.guard(func() { f(ev.Status, ev.Fields) })
			c.mu.Lock()
			return
		}
		for i := range ev.Fields {
			x.client.ignored += ev.Fields[i].Size()
		}
		if x.client.ignored > c.server.limits.HeaderListBytes {
			s.resetLocked(ProtocolError, errInterims)
			c.flushSoonLocked()
		}
		return
	}
	c.answered = true
	x.client.answer = Answer{Status: ev.Status, Fields: x.client.keep(ev.Fields), End: ev.End}
	if ev.End {
		s.bodyEndedLocked(ev)
	}
	if ev.End || x.client.awaited == 0 {
		t.wakeLater(s)
	}
}

// answerEndedLocked reports whether nothing may be sent because the answer has ended: see
// ClientConfig.AnswerEnds.
func (s *Stream) answerEndedLocked() bool {
	return s.conn.server.config.answerEnds && s.core.ReadEnded()
}

// errInterims is for a server that sends so many interim answers that they are longer than a header may
// be. The words are net/http's.
var errInterims = errors.New("header list too large")

// errNoClient is for a server's stream.
var errNoClient = errors.New("h2: Answer was called for a stream that no client has opened")

// Answer waits for the header of the answer. Its errors are those of Read.
func (s *Stream) Answer() (Answer, error) {
	if s.isWhole() {
		return s.extras.client.answer, nil
	}
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	for {
		switch x := s.extras; {
		case x == nil || x.client == nil:
			return Answer{}, errNoClient
		case x.client.late:
			return Answer{}, errDeadline
		case x.client.answer.Status != 0:
			return x.client.answer, nil
		}
		switch {
		case s.served:
			return Answer{}, ErrEnded
		case s.err != nil:
			return Answer{}, s.err
		case errors.Is(s.readErr, os.ErrDeadlineExceeded):
			return Answer{}, s.readErr
		}
		s.waitLocked()
	}
}

// SetAnswerDeadline sets the time after which Answer fails permanently with os.ErrDeadlineExceeded, if
// the answer's header has not come by then. A later time means nothing. It takes the place of
// SetReadDeadline's deadline, and the other way round. The zero time removes it.
func (s *Stream) SetAnswerDeadline(t time.Time) error {
	return s.setDeadline(t, func(x *extras) *Timer { return &x.read }, (*Stream).answerTimeoutLocked)
}

func (s *Stream) answerTimeoutLocked() {
	if x := s.extras; x.client != nil && x.client.answer.Status == 0 {
		x.client.late = true
		s.wakeLocked()
	}
}

// OnInterim makes f be called with each interim answer that comes from now on, before Answer returns. To
// see all of them, call it before Open. f must not block, nor call methods of s that do: it holds up the
// connection's other streams. fields are valid until it returns. A server's stream has none.
func (s *Stream) OnInterim(f func(status int, fields []Field)) {
	if s.conn == nil {
		s.makeClientPart().interim = f
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
	if s.isWhole() {
		return
	}
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	if s.extras == nil || s.extras.client == nil {
		return
	}
	p := s.extras.client
	p.awaited = max(most, 1)
	for s.readErr == nil && s.err == nil && !s.served && !p.late && s.body.bytes() < p.awaited {
		s.waitLocked()
	}
	p.awaited = 0
}

// awaitsMoreLocked reports whether the goroutine that waits needs more than has come.
func (s *Stream) awaitsMoreLocked() bool {
	return s.extras != nil && s.extras.client != nil && s.body.bytes() < s.extras.client.awaited
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
	if s.served {
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
	s.served = true
	if n := s.dropBodyLocked(); n > 0 && c.phase == alive {
		c.core.Discarded(&s.core, n)
	}
	s.unqueueLocked()
	s.wakeLocked()
	s.extras.stop()
}

// Answered reports whether the server has answered a request on a client's connection.
func (c *Conn) Answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// unservedLocked ends the streams that the server's GOAWAY leaves out.
func (c *Conn) unservedLocked(ev *http2.Event) {
	c.noteGoAwayLocked(ev)
	c.changedLocked(Leaving)
	c.core.EndUnserved(ev.ID, func(st *http2.Stream) {
		s := st.User.(*Stream)
		s.endLocked(&StreamError{ID: st.ID(), Code: RefusedStream, Remote: true, Err: ErrUnserved})
	})
}

// breachOf returns the rule that the peer broke, if the core has reset a stream of a client for it.
func (c *Conn) breachOf(ev *http2.Event) error {
	if !c.server.client || ev.Reason == "" {
		return nil
	}
	return errors.New(ev.Reason)
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
