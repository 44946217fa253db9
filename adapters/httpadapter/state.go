package httpadapter

import (
	"fmt"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/invariants"
)

// state is where a connection is on its way between the engine, net/http and the user.
//
//	state           held by      meaning                                 leaves by
//	new             accept loop  the user's hooks are called             keep: fresh, or handshake if a
//	                                                                     hook has begun one
//	fresh           connQueue    nothing was ever served; callback armed handshake: handshake, over TLS;
//	                                                                     enqueue: queued; serve: serving
//	handshake       connQueue    a goroutine of ours runs it (TLS)       enqueue: queued; serve: serving
//	queued          connQueue    it waits for net/http's Accept          lease: opening; giveAway: http2
//	parked          connQueue    between two requests; callback armed    enqueue: queued; serve: serving;
//	                                                                     takeOut: takenOut, as from fresh
//	takenOut        HandOver     it is offered to another process        putBack: parked, or fresh;
//	                                                                     close: closing; closeTakenOut:
//	                                                                     closed
//	closing         HandOver     the same, and Close was called, which closeTakenOut: closed
//	                             HandOver makes up for
//	serving         a worker     the fast path reads or serves requests, notify: notified; rest: parked,
//	                or workers   or is about to                          or fresh; enqueue: queued;
//	                                                                     takeOutServed: takenOut
//	notified        a worker     the same, and the callback, armed       resumeServing: serving;
//	                             while a handler ran, has come           enqueue: queued;
//	                                                                     takeOutServed: takenOut
//	opening         net/http     leased, and nothing was read yet        endWait: busy, arrived, http2, ending
//	arrived         net/http     it has the first bytes since parking,   readMore, setReadDeadline: busy
//	                             and no more yet
//	busy            net/http     a request is under way                  finish: idle
//	idle            net/http     it waits for the next request, or is    endWait: busy, http2, ending;
//	                             about to                                setReadDeadline, again: busy
//	ending          net/http     its waiting Read has returned io.EOF    endLease: ended
//	ended           net/http     it has closed its lease                 giveBack: parked, or fresh if
//	                                                                     nothing was ever read
//	http2           net/http     it speaks HTTP/2, or its handshake has  close: shut; end: closed, if the
//	                             failed: never parked                    user's Close of the *tls.Conn is
//	                                                                     under way, and net/http's does nothing
//	shut            net/http,    closed; StateClosed is still to come    end: closed
//	                a worker
//	closedInHeader  net/http     the same, since arrived, or since       setReadDeadline: shut;
//	                             opening after parking                   end: closed
//	hijacked        the user     all calls go straight through           (final)
//	closed          -            StateClosed was reported, or will be    (final)
//
// Besides:
//
//   - close leaves every state but the final ones. A connection that net/http has becomes shut or
//     closedInHeader, because net/http reports StateClosed, and one that a worker has becomes shut;
//     any other becomes closed. There are two exceptions. The first Close in ending is the one with
//     which net/http gives a lease back. If the user has called it instead, net/http calls the second and
//     closes the connection anyway. And a connection that HandOver has becomes closing: its
//     descriptor is being passed on, and stays open until then.
//   - hijack leaves every state in which a handler may run.
//   - end leaves ended, too, when net/http accepts no more.
//
// In ended the goroutine that is in the ConnState hook is the last part of net/http that
// refers to the lease: net/http took it out of the list of connections that Shutdown and
// Close go through before. So no Close of an old lease can hit a new one.
type state uint8

const (
	stateNew state = iota
	stateFresh
	stateHandshake
	stateQueued
	stateParked
	stateTakenOut
	stateClosing
	stateServing
	stateNotified
	stateOpening
	stateArrived
	stateBusy
	stateIdle
	stateEnding
	stateEnded
	stateHTTP2
	stateShut
	stateClosedInHeader
	stateHijacked
	stateClosed

	stateCount = iota
)

var stateNames = [stateCount]string{
	"new", "fresh", "handshake", "queued", "parked", "takenOut", "closing", "serving", "notified", "opening", "arrived", "busy", "idle", "ending",
	"ended", "http2", "shut", "closedInHeader", "hijacked", "closed",
}

func (s state) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// states is a set of states.
type states uint32

func setOf(list ...state) (set states) {
	for _, s := range list {
		set |= 1 << s
	}
	return set
}

func (set states) has(s state) bool { return set>>s&1 != 0 }

// The states of connections that a worker has, that the adapter keeps, that a handler may have,
// and in which no Read waits for a request. (It may wait, until it fails, once the connection is
// closed.)
var (
	servedStates     = setOf(stateServing, stateNotified)
	keptStates       = setOf(stateFresh, stateHandshake, stateQueued, stateParked, stateTakenOut)
	waitlessStates   = keptStates | setOf(stateNew, stateClosing, stateServing, stateNotified, stateArrived, stateBusy, stateEnding, stateEnded, stateHTTP2, stateHijacked)
	hijackableStates = setOf(stateServing, stateNotified, stateArrived, stateBusy, stateIdle, stateHTTP2, stateShut, stateClosedInHeader)
)

// edges is the table above: where each state may lead.
var edges = [stateCount]states{
	stateNew:            setOf(stateFresh, stateHandshake, stateParked, stateShut),
	stateFresh:          setOf(stateHandshake, stateQueued, stateServing, stateTakenOut, stateClosed),
	stateHandshake:      setOf(stateQueued, stateServing, stateClosed),
	stateQueued:         setOf(stateOpening, stateHTTP2, stateClosed),
	stateParked:         setOf(stateQueued, stateServing, stateTakenOut, stateClosed),
	stateTakenOut:       setOf(stateFresh, stateParked, stateClosing, stateClosed),
	stateClosing:        setOf(stateClosed),
	stateServing:        setOf(stateNotified, stateFresh, stateParked, stateQueued, stateTakenOut, stateShut, stateHijacked),
	stateNotified:       setOf(stateServing, stateQueued, stateTakenOut, stateShut, stateHijacked),
	stateOpening:        setOf(stateBusy, stateArrived, stateHTTP2, stateEnding, stateShut, stateClosedInHeader),
	stateArrived:        setOf(stateBusy, stateClosedInHeader, stateHijacked),
	stateBusy:           setOf(stateIdle, stateShut, stateHijacked),
	stateIdle:           setOf(stateBusy, stateHTTP2, stateEnding, stateShut, stateHijacked),
	stateEnding:         setOf(stateEnded, stateShut),
	stateEnded:          setOf(stateParked, stateFresh, stateShut, stateClosed),
	stateHTTP2:          setOf(stateShut, stateHijacked, stateClosed),
	stateShut:           setOf(stateClosed, stateHijacked),
	stateClosedInHeader: setOf(stateShut, stateClosed, stateHijacked),
}

// connState is a state and its bits, packed into a word, so that a request changes
// it by compare-and-swap and a Read sees all of it at once:
//
//	bits    meaning
//	0-4     the state
//	5-17    flags
//	18-19   the method of the last request: see method
//	20-31   when the last wait for a request began, in ticks: see sweeper
//
// Every change is one of the functions below. They are pure: their result takes effect when conn
// swaps it in. The ones that return false have no meaning in the state at hand: another goroutine
// was faster, or the call is not the one that it would be if net/http made it.
type connState uint32

const (
	began        connState = 1 << (5 + iota) // a request has been answered, ever
	predated                                 // idle: a deadline was set that is replaced by a short one: see probe.Way
	dated                                    // idle: the deadline was set since StateIdle
	bare                                     // idle: net/http has given its buffer back: see probe.Way
	waiting                                  // opening, idle: a Read waits for a first byte, and
	parkable                                 // may be ended to park the connection, which
	expired                                  // is being done: the engine's deadline has passed
	recentlyUsed                             // opening to idle: it was parked for nothing: see sweeper
	sniffed                                  // the method is that of the request under way
	inHeader                                 // arrived, busy: net/http has not got all of the lease's first header
	answered                                 // busy: net/http has taken the write deadline of the request away
	unannounced                              // opening, http2: StateNew is still to come for the lease
	disarmed                                 // takenOut: the callback is not armed, and will not come
)

const (
	stateMask   = 1<<5 - 1
	methodShift = 18
	methodMask  = 1<<20 - 1<<methodShift
	tickShift   = 20
	tickMask    = 1<<(32-tickShift) - 1
)

func (s connState) state() state                  { return state(s & stateMask) }
func (s connState) has(flags connState) bool      { return s&flags == flags }
func (s connState) to(st state) connState         { return s&^stateMask | connState(st) }
func (s connState) set(flags connState) connState { return s | flags }
func (s connState) clear(fl connState) connState  { return s &^ fl }

// String is for failures.
func (s connState) String() string {
	text := s.state().String()
	for i, name := range []string{
		"began", "predated", "dated", "bare", "waiting", "parkable", "expired", "recentlyUsed", "sniffed", "inHeader", "answered", "unannounced",
		"disarmed",
	} {
		if s.has(began << i) {
			text += " " + name
		}
	}
	return text
}

// checkChange panics if from must not become to, in a checking build.
func checkChange(from, to connState) {
	if !invariants.Enabled {
		return
	}
	switch a, b := from.state(), to.state(); {
	case a != b && !edges[a].has(b):
		panic(fmt.Sprintf("httpadapter: %v became %v, which is no edge of the table", from, to))
	case to.has(parkable) && !to.has(waiting):
		panic(fmt.Sprintf("httpadapter: %v became %v: no Read waits that could be ended", from, to))
	case to.has(expired) && !to.has(parkable):
		panic(fmt.Sprintf("httpadapter: %v became %v: a Read is being ended that must not be", from, to))
	case to.has(waiting) && waitlessStates.has(b):
		panic(fmt.Sprintf("httpadapter: %v became %v while a Read waits for a request", from, to))
	case to.has(disarmed) && b != stateTakenOut && b != stateClosing && b != stateClosed:
		panic(fmt.Sprintf("httpadapter: %v became %v, which waits for a callback", from, to))
	}
}

// # With the adapter

// keep is for a connection after the hooks for a new one. One that comes from another process may have
// had requests there.
func (s connState) keep(handshaking bool) (connState, bool) {
	switch {
	case handshaking:
		return s.to(stateHandshake), s.state() == stateNew
	case s.has(began):
		return s.to(stateParked), s.state() == stateNew
	}
	return s.to(stateFresh), s.state() == stateNew
}

// handshake is for a connection over TLS that has something to read, or no more time.
func (s connState) handshake() (connState, bool) {
	return s.to(stateHandshake), s.state() == stateFresh
}

// enqueue is for a connection that net/http is to have: it has something to read, its handshake is
// over, or the fast path declines a request.
func (s connState) enqueue() (connState, bool) {
	switch s.state() {
	case stateFresh, stateHandshake, stateParked, stateServing, stateNotified:
		return s.to(stateQueued), true
	}
	return s, false
}

// lease is for a connection that net/http accepts at the given tick.
func (s connState) lease(tick uint32) (connState, bool) {
	to := s.to(stateOpening).clear(recentlyUsed | predated | dated | bare).set(unannounced)
	if s.has(began) && s.since(tick) < parkTicksRecent {
		to = to.set(recentlyUsed)
	}
	return to, s.state() == stateQueued
}

// giveAway is for a connection that net/http accepts and never gives back: HTTP/2, or a
// handshake that failed, which it reports to the log and the client.
func (s connState) giveAway() (connState, bool) {
	return s.to(stateHTTP2).set(unannounced), s.state() == stateQueued
}

// # With HandOver

// takeOut is for a connection that waits for a request, which HandOver takes.
func (s connState) takeOut() (connState, bool) {
	return s.to(stateTakenOut), s.state() == stateFresh || s.state() == stateParked
}

// takeOutServed is for one that a worker has, which gives it to HandOver instead of letting it wait.
func (s connState) takeOutServed() (connState, bool) {
	if s.state() == stateNotified {
		return s.to(stateTakenOut).set(disarmed), true
	}
	return s.to(stateTakenOut), s.state() == stateServing
}

// disarm is for the callback that has come, or was cancelled.
func (s connState) disarm() (connState, bool) { return s.set(disarmed), s.state() == stateTakenOut }

// putBack is for a connection that no other process has taken over: it waits again.
func (s connState) putBack() (connState, bool) {
	to := s.clear(disarmed).to(stateFresh)
	if s.has(began) {
		to = to.to(stateParked)
	}
	return to, s.state() == stateTakenOut
}

// closeTakenOut is for a connection that HandOver closes.
func (s connState) closeTakenOut() (connState, bool) {
	return s.to(stateClosed), s.state() == stateTakenOut || s.state() == stateClosing
}

// # With a worker

// serve is for a connection of the fast path that has something to read, or whose handshake is over, so
// that it may.
func (s connState) serve() (connState, bool) {
	switch s.state() {
	case stateFresh, stateHandshake, stateParked:
		return s.to(stateServing), true
	}
	return s, false
}

// notify is for the callback that comes while a worker has the connection.
func (s connState) notify() (connState, bool) { return s.to(stateNotified), s.state() == stateServing }

// resumeServing is for a worker that is about to read.
func (s connState) resumeServing() (connState, bool) {
	return s.to(stateServing), servedStates.has(s.state())
}

// rest is for a connection that waits for more, with the callback armed. Nothing has come since.
func (s connState) rest() (connState, bool) {
	if s.has(began) {
		return s.to(stateParked), s.state() == stateServing
	}
	return s.to(stateFresh), s.state() == stateServing
}

// serveRequest is for a request whose header a worker has.
func (s connState) serveRequest(method string) (connState, bool) {
	last := methodOther
	if method == "POST" {
		last = methodPOST
	}
	return s.withMethod(last), servedStates.has(s.state())
}

// answerServed is for a request that a worker has answered.
func (s connState) answerServed() (connState, bool) { return s.set(began), servedStates.has(s.state()) }

// # With net/http: the wait for a request

// announce is for net/http's StateNew, which comes once per lease.
func (s connState) announce() (connState, bool) { return s.clear(unannounced), s.has(unannounced) }

// waits reports whether a Read would wait for a request.
func (s connState) waits() bool { return s.state() == stateOpening || s.state() == stateIdle }

// These flags of idle tell how far net/http has got with its wait (see [probe.Way]):
//
//	flags         meaning                                           a Read may be ended if
//	-             nothing yet                                       never
//	predated      the first of three deadlines was set              never
//	dated         the deadline of the first Read was set            the buffer is empty
//	dated bare    that Read, into the empty buffer, has timed out   never
//	bare          the deadline of the second Read was set           it is for one byte

// beginWait is for a Read into a slice of size bytes, at the given tick. If net/http has none of
// the request the connection may be parked during the Read.
//
// In idle one deadline was set, the wait's own, and the slice is as long as the buffer of
// net/http, so that this is empty; or there is no buffer any more, and the second deadline was set.
// With no deadline net/http is not as it is known, and waits for as long as it likes.
func (s connState) beginWait(size int, tick uint32, way probe.Way) (connState, bool) {
	to := s.set(waiting)
	switch {
	case !s.waits() || way == probe.Unknown:
	case s.state() == stateOpening, s.has(dated) && !s.has(bare) && size == probe.ReadBytes:
		to = to.set(parkable).at(tick)
	case s.has(bare) && !s.has(dated) && size == 1:
		to = to.set(parkable) // the same wait
	}
	return to, s.waits()
}

// timeOut is for a Read into a slice of size bytes that has ended with nothing at net/http's own
// deadline. If the deadline was the first of two net/http gives its empty buffer back.
func (s connState) timeOut(size int, way probe.Way) connState {
	to := s.clear(waiting | parkable | expired)
	if way.GivesBack() && s.state() == stateIdle && s.has(dated) && size == probe.ReadBytes {
		to = to.set(bare)
	}
	return to
}

// mayPark reports whether a Read waits that may be ended to park the connection.
func (s connState) mayPark() bool { return s&(parkable|expired) == parkable }

// expireRead is for a Read that has waited for long enough.
func (s connState) expireRead() (connState, bool) { return s.set(expired), s.mayPark() }

// resume is for the first byte after parking, of which net/http knows nothing yet.
func (s connState) resume() connState { return s.clear(parkable | expired) }

// endWait is for a Read that has found p in a slice of size bytes, or nothing. Then the
// connection is to be parked, or not, because the Read failed otherwise.
func (s connState) endWait(p []byte, size int, park bool) connState {
	to := s.clear(waiting | parkable | expired)
	switch {
	case !s.waits(): // closed by now
	case len(p) > 0:
		return to.begin(p, size)
	case park:
		return to.to(stateEnding)
	}
	return to
}

// begin is for the first bytes of a request.
func (s connState) begin(p []byte, size int) connState {
	to := s.clear(answered).to(stateBusy)
	switch {
	case s.state() == stateOpening:
		if s.has(began) {
			to = to.to(stateArrived)
		}
		return to.set(inHeader).sniff(p)
	case size == probe.ReadBytes, s.has(bare):
		return to.sniff(s.skipNewlines(p))
	}
	return to.sniff(nil) // it began before p
}

// at notes that a wait begins at the given tick.
func (s connState) at(tick uint32) connState {
	return s&^(tickMask<<tickShift) | connState(tick)<<tickShift
}

// since returns how many ticks ago, seen from the given one, the wait began. It goes
// round after tickMask ticks.
func (s connState) since(tick uint32) uint32 { return (tick - uint32(s>>tickShift)) & tickMask }

// # With net/http: a request

// readMore is for the bytes after the first ones since parking.
func (s connState) readMore() (connState, bool) { return s.to(stateBusy), s.state() == stateArrived }

// completeHeader is for a header that net/http has read to its end.
func (s connState) completeHeader() (connState, bool) { return s.clear(inHeader), true }

// answer is for a request whose write deadline net/http takes away: it is answered.
func (s connState) answer() (connState, bool) { return s.set(answered), s.state() == stateBusy }

// finish is for net/http's StateIdle.
func (s connState) finish() (connState, bool) {
	if !s.has(sniffed) {
		s = s.withMethod(methodUnknown) // of a pipelined request, whose first bytes were not seen as such
	}
	to := s.clear(sniffed | predated | dated | bare | inHeader | answered).set(began).to(stateIdle)
	return to, s.state() == stateBusy && s.has(answered)
}

// resuming reports whether a connection waits, as net/http would have it if it hadn't
// been parked, for its next request: no whole header has come since.
func (s connState) resuming() bool {
	switch s.state() {
	case stateOpening:
		return s.has(began)
	case stateArrived, stateBusy:
		return s.has(began | inHeader)
	}
	return false
}

// deadlineUse is the purpose of a read deadline that is set.
type deadlineUse uint8

const (
	deadlinePlain   deadlineUse = iota // for the engine, as it is
	deadlineReal                       // the one that goes on while the connection is parked
	deadlineNoted                      // the same, which is replaced before a Read
	deadlineShort                      // the one after which net/http gives its buffer back
	deadlineRest                       // the one after that, unless the one that goes on is over before
	deadlineFirst                      // net/http's for the first header of a new connection
	deadlineRequest                    // net/http's for all of a request whose header it has got
	deadlineEarly                      // net/http's for a header that has not begun
)

// servedAlone reports whether the goroutine that serves the lease is the only one, except for a
// Close, that changes the connection: SetReadDeadline needs no lock. If the user sets a deadline
// at the same time either may win.
func (s connState) servedAlone() bool {
	return s.state() == stateBusy && !s.has(inHeader) || s.state() == stateIdle && s&(dated|waiting) == 0
}

// setReadDeadline is for a read deadline, of which there are several: see timeouts.go.
func (s connState) setReadDeadline(way probe.Way) (connState, deadlineUse) {
	switch s.state() {
	case stateNew, stateFresh, stateHandshake, stateQueued, stateParked, stateTakenOut, stateServing, stateNotified, stateEnding, stateEnded:
		return s, deadlineReal
	case stateOpening:
		if s.has(began) {
			return s, deadlineEarly
		}
		return s, deadlineFirst
	case stateIdle:
		switch {
		case s.has(waiting):
			return s, deadlineReal // the user's
		case s.has(dated | bare):
			return s.clear(dated), deadlineRest
		case s.has(dated), s.has(bare):
			// net/http has set the deadline of the wait, and now that of the header: it has
			// seen all that it wanted of the next request in its buffer, without a Read.
			return s.to(stateBusy), deadlinePlain
		case way == probe.Thrice && !s.has(predated):
			return s.set(predated), deadlineNoted
		case way.GivesBack():
			return s.set(dated), deadlineShort
		}
		return s.set(dated), deadlineReal
	case stateArrived, stateBusy:
		if s.has(inHeader) {
			return s.to(stateBusy).clear(inHeader), deadlineRequest
		}
		return s.to(stateBusy), deadlinePlain
	case stateClosedInHeader:
		return s.to(stateShut), deadlinePlain // a whole header came anyway
	}
	return s, deadlinePlain
}

// # The end of a lease, and of all

// ending reports whether a Read of net/http's has returned io.EOF so that the connection is parked.
func (s connState) ending() bool { return s.state() == stateEnding || s.state() == stateEnded }

// endLease is for the Close of a lease after its Read has returned io.EOF.
func (s connState) endLease() (connState, bool) { return s.to(stateEnded), s.state() == stateEnding }

// giveBack is for a lease that net/http is done with.
func (s connState) giveBack() (connState, bool) {
	if s.has(began) {
		return s.to(stateParked), s.state() == stateEnded
	}
	return s.to(stateFresh), s.state() == stateEnded
}

// hijack is for net/http's StateHijacked. In idle the user has called ConnState with StateIdle, unless
// a Read waits.
func (s connState) hijack() (connState, bool) {
	return s.to(stateHijacked), hijackableStates.has(s.state()) && !s.has(waiting)
}

// close is for a connection that is closed permanently.
func (s connState) close() (connState, bool) {
	switch st := s.state(); {
	case st == stateTakenOut:
		return s.to(stateClosing), true
	case keptStates.has(st):
		return s.to(stateClosed), true
	case st == stateClosing || st == stateHijacked || st == stateClosed:
		return s, false
	case st == stateOpening && s.has(began), st == stateArrived, st == stateClosedInHeader:
		return s.to(stateClosedInHeader), true
	}
	return s.to(stateShut), true
}

// closeIdle is for a connection that waits for a request, and makes room for another.
func (s connState) closeIdle() (connState, bool) {
	return s.to(stateClosed), s.state() == stateParked || s.state() == stateFresh
}

// closeLeased is for a connection that net/http is done with, though it has not closed it.
func (s connState) closeLeased() (connState, bool) {
	switch s.state() {
	case stateOpening, stateArrived, stateBusy, stateIdle:
		return s.close()
	}
	return s, false
}

// end is for a connection that will not be used again: net/http is done with it, or
// never gets it.
func (s connState) end() (connState, bool) {
	switch s.state() {
	case stateEnded, stateHTTP2, stateShut, stateClosedInHeader:
		return s.to(stateClosed), true
	}
	return s, false
}
