package http2

// A Stream is a request and its answer. The caller provides its memory, as a part of a type of its own,
// and passes it to Conn.Open or, on a client's side, Conn.Begin. From then on it belongs to the Conn.
type Stream struct {
	// User belongs to the caller, which sets it before.
	User any

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

// A streamTable has the open streams. It knows the state of the others, too.
type streamTable struct {
	open      []*Stream     // in the order of their identifiers, in which they are opened
	lastID    uint32        // of the streams that the client has opened
	cancelled *cancelledSet // streams that we have reset; nil: none
}

// streamsRoom is the room that a table begins with.
const streamsRoom = 8

// find returns where the stream with an identifier is, or would be.
func (t *streamTable) find(id uint32) int {
	from, end := 0, len(t.open)
	for from < end {
		if middle := (from + end) / 2; t.open[middle].id < id {
			from = middle + 1
		} else {
			end = middle
		}
	}
	return from
}

func (t *streamTable) get(id uint32) *Stream {
	if at := t.find(id); at < len(t.open) && t.open[at].id == id {
		return t.open[at]
	}
	return nil
}

// add adds a stream, whose identifier is the highest.
func (t *streamTable) add(st *Stream) {
	if t.open == nil {
		t.open = make([]*Stream, 0, streamsRoom)
	}
	t.open = append(t.open, st)
}

func (t *streamTable) remove(st *Stream) {
	at, last := t.find(st.id), len(t.open)-1
	copy(t.open[at:], t.open[at+1:])
	t.open[last] = nil
	t.open = t.open[:last]
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
	if len(c.streams.open) == 0 {
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
