package http2

import (
	"errors"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/percore/percore/internal/http2/hpack"
)

// A Conn is one side of a connection: the server's, or the client's if Config.Client is set. Init makes
// one. Only the goroutine that reads may call Parse. The caller must guard all other methods with a
// lock, or call them from a single goroutine.
type Conn struct {
	reader reader // used by Parse, which touches nothing below but cfg

	cfg *Config

	// Guarded by the caller's lock.
	writer   writer
	streams  streamTable
	budgets  budgets
	recv     inflow    // of the connection
	send     outflow   // of the connection and its streams
	schedule *schedule // nil: not needed yet

	peerList    atomic.Uint32 // SETTINGS_MAX_HEADER_LIST_SIZE; 0 for no limit; read without the lock
	peerStreams int32         // SETTINGS_MAX_CONCURRENT_STREAMS, for a client
	handlers    int32         // of a server: calls of Open minus calls of Returned
	away        away
	settled     bool  // the peer's first SETTINGS have arrived
	unacked     uint8 // SETTINGS of ours
	opens       bool  // of a client: it may open streams, until GOAWAY has come
	answered    bool  // HEADERS or DATA were sent since the peer's last PING
	signals     signals
	skip        bool // the current DATA frame belongs to no stream, and its credit was given back
}

// streamsFirst is how many streams a client opens before it knows the peer's limit, as in net/http.
const streamsFirst = 100

// Init makes the zero Conn a new connection, with our first frames in its output. The Conn must not be
// copied afterwards.
func (c *Conn) Init(cfg *Config) {
	*c = Conn{
		cfg:         cfg,
		writer:      makeWriter(cfg),
		budgets:     cfg.budgets(),
		recv:        inflow{avail: max(cfg.ConnWindowBytes, initialWindowBytes)},
		send:        outflow{conn: initialWindowBytes, initial: initialWindowBytes},
		peerStreams: streamsFirst,
	}
	c.reader.dec = hpack.MakeDecoder()
	if cfg.DecoderTableBytes > hpack.DefaultTableBytes {
		c.reader.dec.SetLimit(cfg.DecoderTableBytes)
	}
	c.start()
}

// A Kind is the kind of an Event.
type Kind uint8

// The kinds of events. The named fields of Event are set, the others are zero.
const (
	None           Kind = iota // nothing for the caller
	RequestStarted             // ID, Request, Fields, End: call Open or Refuse before the next Apply
	DataReceived               // Stream, Data (which may be empty with End), End, Short
	TrailersEnded              // Stream, Fields, End, Short
	StreamReset                // Stream, Code, Local, Long: the stream has ended
	StreamRefused              // a request was refused with REFUSED_STREAM, because of a limit
	PingReceived               // Answered: the peer has sent a PING; our answer is in the output
	PingAcked                  // Data: the eight bytes of a PING that we sent
	PeerGoesAway               // the peer opens no more streams; GOAWAY is in the output

	// Of a client.
	AnswerReceived // Stream, Status, Fields, End: below 200 an interim answer
	ServerGoesAway // ID, the last stream that it serves, Code, Data, for humans: call EndUnserved for those behind
)

// An Event reports what a frame did. All that it refers to is valid until the next Parse with the same
// Frame, except strings, which may be kept.
type Event struct {
	Kind     Kind
	End      bool // the peer has sent END_STREAM
	Short    bool // and sent less than it had declared
	Answered bool // HEADERS or DATA were sent since the peer's PING before
	Local    bool // we reset the stream, because the peer broke a rule
	Long     bool // the rule is that a body is as long as declared
	Code     ErrCode
	Reason   string // of a StreamReset that is Local: the rule that the peer broke
	Status   int
	ID       uint32
	Stream   *Stream
	Request  *Request
	Fields   []hpack.Field // without pseudo-header fields
	Data     []byte

	class priority // of the stream of a request, if it is opened
}

// Apply applies a frame that Parse has found, stores the event in ev, if there is one, and adds the
// answers of the protocol to the output. The error is a [*ConnError]: the connection takes no more
// frames, and the caller must send the output and close it.
func (c *Conn) Apply(f *Frame, ev *Event) error {
	*ev = Event{}
	v := f.verdict
	if v.scope == fine {
		v = c.accept(f, ev)
	}
	if v.scope == ofStream {
		v = c.streamFailed(f, v, ev)
	}
	if v.scope == fine && int(c.writer.controls) > answer*c.cfg.ControlFrames {
		v = tooManyUnread
	}
	if v.scope == fine || c.away == failed {
		return nil
	}
	return c.fail(f, v, ev)
}

// accept applies a frame that is valid by itself. The order of the checks is that of net/http.
func (c *Conn) accept(f *Frame, ev *Event) verdict {
	if !c.settled && f.typ != typeSettings {
		return connError(ProtocolError, "the first frame is not SETTINGS")
	}
	if !c.settled {
		c.settled = true
		c.peerStreams = math.MaxInt32 // unless the SETTINGS say less
	}
	if c.away == failed || c.cfg.side().ignores(c, f) {
		return c.ignore(f)
	}
	switch f.typ {
	case typeData:
		return c.data(f, ev)
	case typeHeaders:
		return c.cfg.side().headers(c, f, ev)
	case typePriority:
		return c.priority(f)
	case typeRSTStream:
		return c.rstStream(f, ev)
	case typeSettings:
		return c.settings(f)
	case typePushPromise:
		return connError(ProtocolError, "PUSH_PROMISE, which a server must not get and a client has turned off")
	case typePing:
		return c.ping(f, ev)
	case typeGoAway:
		return c.cfg.side().goAway(c, f, ev)
	case typeWindowUpdate:
		return c.windowUpdate(f)
	case typePriorityUpdate:
		return c.priorityUpdate(f)
	}
	return c.budgets.spendIdle(1)
}

// streamFailed resets a stream because of an error of the peer.
func (c *Conn) streamFailed(f *Frame, v verdict, ev *Event) verdict {
	if !c.cfg.side().fails(c, f) {
		return c.budgets.spendIdle(1)
	}
	*ev = Event{}
	weight := int32(answer)
	if v.code == RefusedStream {
		ev.Kind, weight = StreamRefused, ownReset
	}
	c.writer.reset(f.id, v.code, weight)
	if st := c.streams.get(f.id); st != nil {
		*ev = Event{Kind: StreamReset, Stream: st, Code: v.code, Reason: v.reason, Local: true, Long: v == tooLong}
		c.enter(st, cancelled)
	}
	return c.budgets.spendReset(c.cfg)
}

// fail ends the connection.
func (c *Conn) fail(f *Frame, v verdict, ev *Event) error {
	if ev.Kind != StreamReset {
		*ev = Event{}
	}
	err := &ConnError{Code: v.code, Reason: v.reason, Limit: v.limit, Silent: v.scope == ofGreeting}
	if err.Silent {
		c.away = failed
	} else {
		c.GoAway(v.code, f.explain(c.cfg, v))
	}
	return err
}

// explain returns the debug data of the GOAWAY for an error that a frame has caused.
func (f *Frame) explain(cfg *Config, v verdict) string {
	switch {
	case !cfg.Explain:
		return ""
	case v.reason == illegalID:
		return illegalID + ": " + strconv.FormatUint(uint64(f.id), 10) + "."
	}
	return v.reason
}

// Move makes to the stream that st was. to must be new, with its User set. st has ended then.
func (c *Conn) Move(st, to *Stream) {
	user := to.User
	*to = *st
	to.User = user
	if !st.Ended() {
		c.streams.replace(st, to)
	}
	if st.sender != nil {
		st.sender.stream = to
	}
	st.state, st.unread, st.sender = closed, 0, nil
}

// ErrEnded is returned by calls that send on a stream that can send no more: it has ended, the peer
// has reset it, or END_STREAM was sent.
var ErrEnded = errors.New("http2: the stream has ended")

// Streams returns how many streams are open.
func (c *Conn) Streams() int { return int(c.streams.n) }

// Answered returns how many of these are answered while their requests go on. A server resets such a
// stream next, and net/http's server sends both together. grpc-go's client stops counting the stream
// when the answer ends.
func (c *Conn) Answered() (n int) {
	c.Each(func(st *Stream) {
		if st.state == halfClosedLocal {
			n++
		}
	})
	return n
}

// Each calls visit for each open stream, in no particular order. visit may end the stream.
func (c *Conn) Each(visit func(*Stream)) { c.streams.each(visit) }

// Settled reports whether the peer's first SETTINGS frame has arrived.
func (c *Conn) Settled() bool { return c.settled }

// PeerHeaderListBytes returns the peer's SETTINGS_MAX_HEADER_LIST_SIZE, which is only advice, or 0
// if the peer has not sent it.
func (c *Conn) PeerHeaderListBytes() uint32 { return c.peerList.Load() }

// Rest frees the memory that only a connection with requests needs. Call it when the connection has had
// no streams for a while. The next answer makes the peer drop its table, too. Parse must not run at the
// same time.
func (c *Conn) Rest() {
	c.writer.enc.Drop()
	c.reader.dec.Trim()
	if c.streams.n == 0 {
		c.streams.buckets = nil
	}
	c.schedule = c.schedule.rest()
}
