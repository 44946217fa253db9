package httpadapter

// word is what a conn is and does, packed so that a Read can see it at a glance:
//
//	bits    what
//	0-4     the state: see conn
//	5-15    flags
//	16-17   the method of the last request: see method
//	18-31   when the last wait for a request began, in ticks: see sweeper
type word uint32

const (
	stateNew uint32 = iota
	stateFresh
	stateShaking
	stateQueued
	stateParked
	stateOpening
	stateArrived
	stateBusy
	stateIdle
	stateEnding
	stateEnded
	statePassed
	stateShut
	stateCut
	stateHijacked
	stateClosed
)

const (
	began        word = 1 << (5 + iota) // a request has been answered, ever
	dated                               // idle: the deadline was set since StateIdle
	waiting                             // opening, idle: a Read waits for a first byte, and
	parkable                            // may be ended to park the connection, which
	severed                             // is being done: the engine's deadline has passed
	recentlyUsed                        // opening to idle: it was parked in vain: see sweeper
	sniffed                             // the method is that of the request under way
	heading                             // arrived, busy: net/http has not got all of the lease's first header
	answered                            // busy: net/http has taken the write deadline of the request away
	unannounced                         // opening, passed: net/http has not told StateNew of the lease
)

const (
	stateMask   = 1<<5 - 1
	methodShift = 16
	methodMask  = 1<<18 - 1<<methodShift
	tickShift   = 18
	tickMask    = 1<<(32-tickShift) - 1
)

func (w word) state() uint32        { return uint32(w) & stateMask }
func (w word) has(flags word) bool  { return w&flags == flags }
func (w word) to(state uint32) word { return w&^stateMask | word(state) }
func (w word) set(flags word) word  { return w | flags }
func (w word) clear(fl word) word   { return w &^ fl }

// mayPark reports whether a Read waits that may be ended to park the connection.
func (w word) mayPark() bool { return w&(parkable|severed) == parkable }

// ending reports whether net/http was told io.EOF so that the connection is parked.
func (w word) ending() bool { return w.state() == stateEnding || w.state() == stateEnded }

// resuming reports whether a connection waits, as net/http would have it if it hadn't
// been parked, for its next request: no whole header has come since.
func (w word) resuming() bool {
	switch w.state() {
	case stateOpening:
		return w.has(began)
	case stateArrived, stateBusy:
		return w.has(began | heading)
	}
	return false
}

// at notes that a wait begins at the given tick.
func (w word) at(tick uint32) word { return w&^(tickMask<<tickShift) | word(tick)<<tickShift }

// since returns how many ticks ago, seen from the given one, the wait began. It goes
// round after tickMask ticks.
func (w word) since(tick uint32) uint32 { return (tick - uint32(w>>tickShift)) & tickMask }

// begin returns what becomes of opening and of idle with the first bytes of a
// request, p, read into a slice of size bytes: busy; arrived if the lease begins with
// them; passed if they are HTTP/2's.
func (w word) begin(p []byte, size int) word {
	from := w.state()
	w = w.clear(waiting | parkable | severed | answered).to(stateBusy)
	switch {
	case from == stateOpening:
		if w.has(began) {
			w = w.to(stateArrived)
		}
		w = w.set(heading).sniff(p)
	case size == readBytes:
		w = w.sniff(w.skipNewlines(p))
	default:
		w = w.sniff(nil) // it began before p
	}
	return w
}

// finish returns what becomes of busy when the answer has been written.
func (w word) finish() word {
	if !w.has(sniffed) {
		w = w.withMethod(methodUnknown) // of a pipelined request, whose first bytes were not seen as such
	}
	return w.clear(sniffed | dated | heading | answered).set(began).to(stateIdle)
}

// shut returns what becomes of a lease when the connection is closed.
func (w word) shut() word {
	switch {
	case w.state() == stateOpening && w.has(began), w.state() == stateArrived, w.state() == stateCut:
		return w.to(stateCut)
	}
	return w.to(stateShut)
}
