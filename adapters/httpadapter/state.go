package httpadapter

import (
	"fmt"

	"github.com/percore/percore/internal/invariants"
)

// state is where a connection is on its way between the engine, net/http and the user. While net/http
// has it, it is leased, and state_lease.go has the rest.
//
//	state      held by      meaning                                 leaves by
//	new        accept loop  the user's hooks are called             keep: fresh, or parked if it has had
//	                                                                requests, or handshake if a hook has
//	                                                                begun one; close: shut
//	fresh      connQueue    nothing was ever served; callback armed handshake: handshake, over TLS;
//	                                                                enqueue: queued; serve: serving
//	handshake  connQueue    a goroutine of ours runs it (TLS)       enqueue: queued; serve: serving
//	queued     connQueue    it waits for net/http's Accept          lease, giveAway: leased
//	parked     connQueue    between two requests; callback armed    enqueue: queued; serve: serving;
//	                                                                takeOut: takenOut, as from fresh
//	takenOut   HandOver     it is offered to another process        putBack: parked, or fresh;
//	                                                                close: closing; closeTakenOut: closed
//	closing    HandOver     the same, and Close was called, which   closeTakenOut: closed
//	                        HandOver makes up for
//	serving    a worker     the fast path reads or serves requests, notify: notified; rest: parked, or
//	           or workers,  or is about to, or an answer is         fresh; enqueue: queued; close: shut;
//	           or a Stream  detached: see http1Stream               takeOutServed: takenOut
//	notified   a worker     the same, and the callback, armed       resumeServing: serving; close: shut;
//	                        while a handler ran, has come           enqueue: queued; takeOutServed: takenOut
//	leased     net/http     see phase                               giveBack: parked, or fresh if no
//	                                                                request was ever answered; end: closed
//	shut       a worker,    closed; StateClosed is still to come    end: closed
//	           accept loop
//	hijacked   the user     all calls go straight through           (final)
//	closed     -            StateClosed was reported, or will be    (final)
//
// Besides:
//
//   - close leaves every state but the final ones. One that a worker has becomes shut, since the worker
//     reports StateClosed; one that net/http has stays leased until net/http reports it. Any other
//     becomes closed, except one that HandOver has: that becomes closing, because its descriptor is being
//     passed on, and stays open until then.
//   - hijack leaves every state in which a handler may run: serving, notified, leased, and shut.
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
	stateShut
	stateHijacked
	stateClosed
	stateLeased

	stateCount = iota
)

var stateNames = [stateCount]string{
	"new", "fresh", "handshake", "queued", "parked", "takenOut", "closing", "serving", "notified", "shut", "hijacked", "closed", "leased",
}

func (s state) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// set is a set of states, or of phases.
type set[T ~uint8] uint32

func setOf[T ~uint8](list ...T) (s set[T]) {
	for _, of := range list {
		s |= 1 << of
	}
	return s
}

func (s set[T]) has(of T) bool { return s>>of&1 != 0 }

// The states of connections that a worker has, and that the adapter keeps.
var (
	servedStates = setOf(stateServing, stateNotified)
	keptStates   = setOf(stateFresh, stateHandshake, stateQueued, stateParked, stateTakenOut)
)

// edges is the table above: where each state may lead. From leased it depends on the phase: see
// leaseEnds.
var edges = [stateCount]set[state]{
	stateNew:       setOf(stateFresh, stateHandshake, stateParked, stateShut),
	stateFresh:     setOf(stateHandshake, stateQueued, stateServing, stateTakenOut, stateClosed),
	stateHandshake: setOf(stateQueued, stateServing, stateClosed),
	stateQueued:    setOf(stateLeased, stateClosed),
	stateParked:    setOf(stateQueued, stateServing, stateTakenOut, stateClosed),
	stateTakenOut:  setOf(stateFresh, stateParked, stateClosing, stateClosed),
	stateClosing:   setOf(stateClosed),
	stateServing:   setOf(stateNotified, stateFresh, stateParked, stateQueued, stateTakenOut, stateShut, stateHijacked),
	stateNotified:  setOf(stateServing, stateQueued, stateTakenOut, stateShut, stateHijacked),
	stateShut:      setOf(stateClosed, stateHijacked),
}

// connState is a state and its bits, packed into a word, so that a request changes it by
// compare-and-swap and a Read sees all of it at once:
//
//	bits    meaning
//	0-4     the state, or, if bit 4 is set, the phase of a connection that is leased
//	5       began, of both
//	6-16    flags of the lease
//	17      disarmed
//	18-19   the method of the last request: see method
//	20-31   when the last wait for a request began, in ticks: see sweeper
//
// The word has two views: this one, and leaseState, the view of net/http's side. Each has its own table
// and its own changes, and only the changes under "With net/http" below lead from one to the other.
// It is one word nevertheless. A hijack takes the connection from net/http unless a Read waits, and a
// Close finds it in one of the two hands, while a request takes no lock: with two words each such pair
// would need an order of its own. And a second word would cost every connection 16 bytes (see
// TestConnSize).
//
// Every change is one of the functions below, or of those in state_lease.go. They are pure: their
// result takes effect when conn swaps it in. The ones that return false have no meaning in the state at
// hand: another goroutine was faster, or the call is not the one that it would be if net/http made it.
type connState uint32

const (
	began    connState = 1 << 5  // a request has been answered, ever
	disarmed connState = 1 << 17 // takenOut: the callback is not armed, and will not come
)

const (
	leasedBit   = 1 << 4
	stateMask   = 1<<5 - 1
	methodShift = 18
	methodMask  = 1<<20 - 1<<methodShift
	tickShift   = 20
	tickMask    = 1<<(32-tickShift) - 1
)

// state returns the state.
func (s connState) state() state {
	if s&leasedBit != 0 {
		return stateLeased
	}
	return state(s & stateMask)
}

func (s connState) has(flags connState) bool      { return s&flags == flags }
func (s connState) to(st state) connState         { return s&^stateMask | connState(st) }
func (s connState) set(flags connState) connState { return s | flags }
func (s connState) clear(fl connState) connState  { return s &^ fl }

// phase returns how far net/http is with its lease; phaseNone if the connection isn't leased.
func (s connState) phase() phase { return leaseState(s).phase() }

// String is for failures.
func (s connState) String() string {
	text := s.state().String()
	if s.state() == stateLeased {
		text = s.phase().String()
	}
	if s.has(began) {
		text += " began"
	}
	text += leaseState(s).flags()
	if s.has(disarmed) {
		text += " disarmed"
	}
	return text
}

// isEdge reports whether the tables lead from one state and phase to the other.
func isEdge(from, to connState) bool {
	switch a, b := from.state(), to.state(); {
	case a != stateLeased && b != stateLeased:
		return a == b || edges[a].has(b)
	case a != stateLeased:
		return edges[a].has(b) && leaseBegins.has(to.phase())
	case b != stateLeased:
		return leaseEnds[from.phase()].has(b)
	}
	return from.phase() == to.phase() || leaseEdges[from.phase()].has(to.phase())
}

// checkChange panics if from must not become to, in a checking build.
func checkChange(from, to connState) {
	if !invariants.Enabled {
		return
	}
	if !isEdge(from, to) {
		panic(fmt.Sprintf("httpadapter: %v became %v, which is no edge of the tables", from, to))
	}
	leaseState(to).check(from)
	if b := to.state(); to.has(disarmed) && b != stateTakenOut && b != stateClosing && b != stateClosed {
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
	return connState(leaseState(s).withMethod(last)), servedStates.has(s.state())
}

// answerServed is for a request that a worker has answered.
func (s connState) answerServed() (connState, bool) { return s.set(began), servedStates.has(s.state()) }

// # With net/http

// lease is for a connection that net/http accepts at the given tick.
func (s connState) lease(tick uint32) (connState, bool) {
	to := leaseState(s).to(phaseOpening).clear(recentlyUsed | predated | dated | bare).set(unannounced)
	if s.has(began) && to.since(tick) < parkTicksRecent {
		to = to.set(recentlyUsed)
	}
	return connState(to), s.state() == stateQueued
}

// giveAway is for a connection that net/http accepts and never gives back: HTTP/2, or a
// handshake that failed, which it reports to the log and the client.
func (s connState) giveAway() (connState, bool) {
	return connState(leaseState(s).to(phaseHTTP2).set(unannounced)), s.state() == stateQueued
}

// giveBack is for a lease that net/http is done with.
func (s connState) giveBack() (connState, bool) {
	if s.has(began) {
		return s.to(stateParked), s.phase() == phaseEnded
	}
	return s.to(stateFresh), s.phase() == phaseEnded
}

// hijack is for net/http's StateHijacked, or a worker's.
func (s connState) hijack() (connState, bool) {
	ok := servedStates.has(s.state()) || s.state() == stateShut || leaseState(s).mayHijack()
	return s.to(stateHijacked), ok
}

// # The end

// close is for a connection that is closed permanently.
func (s connState) close() (connState, bool) {
	switch st := s.state(); {
	case st == stateLeased:
		return connState(leaseState(s).close()), true
	case st == stateTakenOut:
		return s.to(stateClosing), true
	case keptStates.has(st):
		return s.to(stateClosed), true
	case st == stateClosing || st == stateHijacked || st == stateClosed:
		return s, false
	}
	return s.to(stateShut), true
}

// closeIdle is for a connection that waits for a request, and makes room for another.
func (s connState) closeIdle() (connState, bool) {
	return s.to(stateClosed), s.state() == stateParked || s.state() == stateFresh
}

// end is for a connection that will not be used again: a worker or net/http is done with it, or
// net/http never gets it.
func (s connState) end() (connState, bool) {
	if s.state() == stateShut || leaseEnds[s.phase()].has(stateClosed) {
		return s.to(stateClosed), true
	}
	return s, false
}
