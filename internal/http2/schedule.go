package http2

import (
	"container/heap"
	"math/bits"
)

// A sender is a stream whose body waits to be sent: see Conn.Queue. It is in one of these places.
//
//	place     waits for                                   leaves by
//	free      room in the output; it has no bytes         Pump: it's done
//	a class   room, the connection's window, its turn     Pump: it's done; its own window is used up: blocked;
//	                                                      PRIORITY_UPDATE: another class
//	blocked   its own window                              a frame that opens the window: its class
//	nowhere   nothing                                     Queue: one of the others
//
// Unqueue takes it out of any place. The work of Pump depends on the frames that it makes, and not on
// how many senders wait.
type sender struct {
	stream     *Stream
	unsent     []byte
	next, last *sender // in the ring of its place
	at         int32   // in schedule.blocked
	place      place
	end        bool // END_STREAM is behind the bytes
}

type place uint8

const (
	nowhere place = iota
	free
	queued // in the ring of its stream's class
	blocked
)

// A ring has senders in the order of their turns.
type ring struct {
	first *sender
	begun uint32 // the stream that was served last, if it is not incremental
}

// A schedule decides which sender is next. A class is served when no more urgent class has senders.
// Within a class senders take turns frame by frame if they are incremental; otherwise one is served
// until it is done. The two classes of an urgency alternate. (RFC 9218, section 10; net/http does the
// same.)
//
// Most handlers send a body in pieces. When the last byte of a piece is in the output, the stream is no
// sender until its handler brings the next piece, and streams behind it must not slip in each time. So
// when a piece is done, Pump stops before the next stream that would have had to wait for more of it. It
// goes on when the output was taken to be sent: the handler has that much time to come back. A stream
// that is not incremental then goes on before others of its class.
//
// Until a client sends a priority, there is one class, with the only ring. A connection has a schedule
// once a body has waited, or a priority has come early.
type schedule struct {
	plain   ring         // of plainPriority
	others  *[16]ring    // of the other classes, once they are used
	free    *sender      // a ring
	blocked blockedQueue // those with the widest window first
	spare   *sender      // to be used again; nil: none
	early   []earlyUpdate
	n       int32  // senders
	filled  uint16 // a bit for each class whose ring has senders
	pieces  uint16 // a bit for each class of which a piece is in the output, and not its stream's end
	swap    bool   // which class of an urgency is the next one
}

func (c *Conn) makeSchedule() *schedule {
	if c.schedule == nil {
		c.schedule = new(schedule)
	}
	return c.schedule
}

// rest returns the schedule without what only a busy connection needs.
func (q *schedule) rest() *schedule {
	switch {
	case q == nil || q.n > 0:
		return q
	case len(q.early) > 0:
		return &schedule{early: q.early}
	}
	return nil
}

// Queue makes a stream a sender, which it must not be yet: Pump moves p into the output, as far as
// windows and room allow, and END_STREAM behind it if end is set. Without either, the stream waits for
// room. p must not change until the stream is no sender any more.
func (c *Conn) Queue(st *Stream, p []byte, end bool) {
	q := c.makeSchedule()
	at := q.newSender()
	at.stream, at.unsent, at.end = st, p, end
	st.sender = at
	q.n++
	q.put(at, &c.send)
}

// Unqueue makes a stream no sender, and reports whether it was one.
func (c *Conn) Unqueue(st *Stream) bool {
	at := st.sender
	if at != nil {
		c.schedule.take(at)
	}
	return at != nil
}

func (q *schedule) take(at *sender) {
	q.remove(at)
	q.n--
	at.stream.sender, q.spare = nil, at
	*at = sender{}
}

func (q *schedule) newSender() *sender {
	at := q.spare
	if q.spare = nil; at == nil {
		at = new(sender)
	}
	return at
}

// Queued reports whether the stream is a sender.
func (st *Stream) Queued() bool { return st.sender != nil }

// Senders returns how many streams are senders.
func (c *Conn) Senders() int {
	if c.schedule == nil {
		return 0
	}
	return int(c.schedule.n)
}

// Sender returns one of the senders, or nil if there is none.
func (c *Conn) Sender() *Stream {
	q := c.schedule
	switch {
	case q == nil:
	case q.free != nil:
		return q.free.stream
	case q.filled != 0:
		return q.ring(priority(bits.TrailingZeros16(q.filled))).first.stream
	case len(q.blocked) > 0:
		return q.blocked[0].stream
	}
	return nil
}

// Ready reports whether Pump can do something, if there is room.
func (c *Conn) Ready() bool {
	q := c.schedule
	if q == nil {
		return false
	}
	return q.free != nil || c.send.conn > 0 && (q.filled != 0 || q.isOpen(&c.send))
}

// Pump moves bodies of senders into the output, until it has room bytes. It returns a stream that is no
// sender any more, because its bytes are in the output or it can send nothing more, and is then to be
// called again. It returns nil if there is nothing to do.
func (c *Conn) Pump(room int) *Stream {
	q := c.schedule
	if q == nil {
		return nil
	}
	for q.isOpen(&c.send) {
		q.replace(q.blocked[0], &c.send)
	}
	for len(c.writer.out) < room {
		at := q.choose(c.send.conn > 0)
		if at == nil {
			return nil
		}
		if c.serve(at) {
			st := at.stream
			q.take(at)
			return st
		}
	}
	return nil
}

// isOpen reports whether a blocked sender's window has opened, because the initial window has grown.
func (q *schedule) isOpen(windows *outflow) bool {
	return len(q.blocked) > 0 && windows.of(q.blocked[0].stream) > 0
}

// windowOpened is for a stream whose own window has become larger.
func (q *schedule) windowOpened(st *Stream, windows *outflow) {
	switch at := st.sender; {
	case at == nil || at.place != blocked:
	case windows.of(st) > 0:
		q.replace(at, windows)
	default:
		heap.Fix(&q.blocked, int(at.at))
	}
}

// serve moves a frame of a sender into the output, or two if the peer's SETTINGS_MAX_FRAME_SIZE is
// small. It reports whether the sender is done.
func (c *Conn) serve(at *sender) (done bool) {
	st := at.stream
	p := at.unsent[:min(len(at.unsent), maxFrameBytes)]
	n, err := c.Data(st, p, at.end && len(p) == len(at.unsent))
	at.unsent = at.unsent[n:]
	done = err != nil || len(at.unsent) == 0 && (!at.end || st.WriteEnded())
	if at.place == queued && n > 0 {
		c.schedule.served(at, done && !at.end && err == nil)
	}
	if !done && c.send.of(st) <= 0 {
		c.schedule.replace(at, &c.send)
	}
	return done
}

// replace puts a sender where it belongs now.
func (q *schedule) replace(at *sender, windows *outflow) {
	q.remove(at)
	q.put(at, windows)
}

func (q *schedule) put(at *sender, windows *outflow) {
	switch {
	case len(at.unsent) == 0:
		at.place = free
		push(&q.free, at)
	case windows.of(at.stream) <= 0:
		at.place = blocked
		heap.Push(&q.blocked, at)
	default:
		at.place = queued
		q.push(at)
	}
}

// push puts a sender behind the others of its class, or before them if it was begun.
func (q *schedule) push(at *sender) {
	class := at.stream.priority
	r := q.ring(class)
	push(&r.first, at)
	if !class.incremental() && r.begun == at.stream.id {
		r.first = at
	}
	q.filled |= 1 << class
}

// remove takes a sender out of its place.
func (q *schedule) remove(at *sender) {
	switch at.place {
	case free:
		pull(&q.free, at)
	case blocked:
		heap.Remove(&q.blocked, int(at.at))
		if len(q.blocked) == 0 {
			q.blocked = nil
		}
	case queued:
		class := at.stream.priority
		r := q.ring(class)
		if pull(&r.first, at); r.first == nil {
			q.filled &^= 1 << class
		}
	}
	at.place = nowhere
}

// choose returns the sender whose turn it is, or nil. open says whether the connection's window is.
func (q *schedule) choose(open bool) *sender {
	if q.free != nil {
		return q.free // it takes nothing from the others
	}
	if !open || q.filled == 0 {
		return nil
	}
	class := priority(bits.TrailingZeros16(q.filled))
	if both := uint16(3) << (class &^ 1); q.filled&both == both && q.swap {
		class |= 1
	}
	before := uint16(1)<<(class&^1) - 1 // the classes that are more urgent
	if !class.incremental() {
		before |= 1 << class
	}
	if q.pieces&before != 0 {
		return nil
	}
	return q.ring(class).first
}

// served notes that a frame of a sender was made, which is still in its ring.
func (q *schedule) served(at *sender, piece bool) {
	class := at.stream.priority
	q.swap = !q.swap
	if piece {
		q.pieces |= 1 << class
	}
	if r := q.ring(class); class.incremental() {
		r.first = at.next
	} else {
		r.begun = at.stream.id
	}
}

func (q *schedule) ring(class priority) *ring {
	if class == plainPriority {
		return &q.plain
	}
	if q.others == nil {
		q.others = new([16]ring)
	}
	return &q.others[class]
}

// push adds at to the end of a ring.
func push(first **sender, at *sender) {
	if *first == nil {
		*first, at.next, at.last = at, at, at
		return
	}
	at.next, at.last = *first, (*first).last
	at.last.next, at.next.last = at, at
}

// pull takes at out of a ring.
func pull(first **sender, at *sender) {
	if *first == at {
		*first = at.next
	}
	if *first == at {
		*first = nil
	}
	at.last.next, at.next.last = at.next, at.last
	at.next, at.last = nil, nil
}

// A blockedQueue has the senders whose windows are closed. When the peer raises the initial window, the
// senders whose windows open are at the front. It is a heap of package container/heap.
type blockedQueue []*sender

func (b blockedQueue) Len() int { return len(b) }

func (b blockedQueue) Less(i, j int) bool {
	s, t := b[i].stream, b[j].stream
	return s.delta > t.delta || s.delta == t.delta && s.id < t.id
}

func (b blockedQueue) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].at, b[j].at = int32(i), int32(j)
}

// Push implements heap.Interface.
func (b *blockedQueue) Push(x any) {
	at := x.(*sender)
	at.at = int32(len(*b))
	*b = append(*b, at)
}

// Pop implements heap.Interface.
func (b *blockedQueue) Pop() any {
	last := len(*b) - 1
	at := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return at
}
