package http2

import "math/rand/v2"

// A Stream is a request and its answer. The caller provides its memory, as a part of a type of its own,
// and passes it to Conn.Open or, on a client's side, Conn.Begin. From then on it belongs to the Conn.
type Stream struct {
	// User belongs to the caller, which sets it before.
	User any

	next     *Stream // in its bucket
	sender   *sender // nil: none
	delta    int64   // of the send window from the peer's initial window
	left     int64   // bytes of the body that have not come, by content-length; -1 if there is none
	id       uint32
	recv     inflow
	unread   int32 // bytes of the body that the caller has, and the peer has no credit for; 0 with CreditOnReceipt
	state    state
	priority priority
	begun    bool // the peer's header has come
}

// ID returns the identifier.
func (st *Stream) ID() uint32 { return st.id }

// Ended reports whether the stream has ended: with END_STREAM from both sides, or a reset by either.
func (st *Stream) Ended() bool { return st.state >= closed }

// ReadEnded reports whether the peer has finished sending.
func (st *Stream) ReadEnded() bool { return st.state >= halfClosedRemote }

// WriteEnded reports whether nothing more can be sent to the peer.
func (st *Stream) WriteEnded() bool { return st.state == halfClosedLocal || st.state >= closed }

// A streamTable finds streams by their identifiers. It is empty while there are no streams.
//
// It knows the state of streams that it doesn't have, too.
type streamTable struct {
	buckets   []*Stream // their number is a power of two
	n         int32
	lastID    uint32        // of the streams that the client has opened
	cancelled *cancelledSet // streams that we have reset; nil: none
}

const bucketsMin = 8

// tableSeeds are odd. They keep a peer from choosing identifiers that share a bucket.
var tableSeeds = [2]uint64{rand.Uint64() | 1, rand.Uint64() | 1}

// bucket returns where a stream is. The second product spreads identifiers with equal distances, which
// the first may have brought together.
func (t *streamTable) bucket(id uint32) **Stream {
	h := uint64(id) * tableSeeds[0]
	h = (h ^ h>>32) * tableSeeds[1]
	return &t.buckets[h>>32&uint64(len(t.buckets)-1)]
}

func (t *streamTable) get(id uint32) *Stream {
	if t.n == 0 {
		return nil
	}
	st := *t.bucket(id)
	for st != nil && st.id != id {
		st = st.next
	}
	return st
}

func (t *streamTable) add(st *Stream) {
	if int(t.n) >= len(t.buckets) {
		t.grow()
	}
	b := t.bucket(st.id)
	st.next, *b = *b, st
	t.n++
}

func (t *streamTable) grow() {
	old := *t
	t.buckets = make([]*Stream, max(bucketsMin, 2*len(old.buckets)))
	old.each(func(st *Stream) {
		b := t.bucket(st.id)
		st.next, *b = *b, st
	})
}

// link returns what refers to a stream in its bucket.
func (t *streamTable) link(st *Stream) **Stream {
	b := t.bucket(st.id)
	for *b != st {
		b = &(*b).next
	}
	return b
}

func (t *streamTable) remove(st *Stream) {
	*t.link(st), st.next = st.next, nil
	t.n--
}

// replace puts to in the place of st.
func (t *streamTable) replace(st, to *Stream) {
	*t.link(st), to.next, st.next = to, st.next, nil
}

// each calls visit for each stream. visit may remove the stream.
func (t *streamTable) each(visit func(*Stream)) {
	for _, st := range t.buckets {
		for st != nil {
			next := st.next
			visit(st)
			st = next
		}
	}
}

// stateOf returns the state of a stream, and the stream if it is open.
func (t *streamTable) stateOf(id uint32) (state, *Stream) {
	if st := t.get(id); st != nil {
		return st.state, st
	}
	switch {
	case t.isIdle(id):
		return idle, nil
	case t.cancelled.has(id):
		return cancelled, nil
	}
	return closed, nil
}

// isIdle reports whether a stream was not opened.
func (t *streamTable) isIdle(id uint32) bool { return id&1 == 0 || id > t.lastID }

// nextID returns the identifier of a stream that a client opens.
func (t *streamTable) nextID() uint32 {
	t.lastID = (t.lastID + 1) | 1
	return t.lastID
}

// noteCancelled notes that we have reset a stream, so that frames that cross the reset are not errors.
func (t *streamTable) noteCancelled(id uint32) {
	if t.cancelled == nil {
		t.cancelled = new(cancelledSet)
	}
	t.cancelled.add(id)
}

// receive applies an input to a stream. It returns nil for a stream that is not open; then the caller
// does only what the verdict says.
func (c *Conn) receive(id uint32, in input) (*Stream, verdict) {
	s, st := c.streams.stateOf(id)
	t := &transitions[s][in]
	if t.scope != fine {
		return st, t.verdict
	}
	if st != nil {
		c.enter(st, t.next)
	}
	return st, verdict{}
}

// enter changes the state of a stream. When the stream ends, in whichever way, the credit for its unread
// bytes is given back.
func (c *Conn) enter(st *Stream, next state) {
	if st.state = next; next < closed {
		return
	}
	c.streams.remove(st)
	n := st.unread
	if st.unread = 0; n > 0 {
		c.refund(int(n))
	}
	if c.streams.n == 0 {
		c.send.deltaMost = 0
	}
	if next == cancelled {
		c.streams.noteCancelled(st.id)
	}
}

// A cancelledSet has the streams that we have reset, of at least the last 15,360 that were opened. It
// has a bit for each, in pages of 1,024 streams that are made when they are needed: 2.4 KiB in total. It
// stays for as long as the connection: on a slow network frames may arrive seconds later.
type cancelledSet [16]*cancelledPage

type cancelledPage struct {
	number uint32
	bits   [cancelledPageStreams / 64]uint64
}

const cancelledPageStreams = 1024

func (s *cancelledSet) place(id uint32) (number, word uint32, bit uint64) {
	n := id >> 1 // streams of clients have odd identifiers
	return n / cancelledPageStreams, n % cancelledPageStreams / 64, 1 << (n % 64)
}

// add adds a stream. Its page may replace one that is much older.
func (s *cancelledSet) add(id uint32) {
	number, word, bit := s.place(id)
	page := &s[number%uint32(len(s))]
	if *page == nil {
		*page = new(cancelledPage)
	}
	if (*page).number != number {
		**page = cancelledPage{number: number}
	}
	(*page).bits[word] |= bit
}

func (s *cancelledSet) has(id uint32) bool {
	if s == nil {
		return false
	}
	number, word, bit := s.place(id)
	page := s[number%uint32(len(s))]
	return page != nil && page.number == number && page.bits[word]&bit != 0
}
