package h1

import "fmt"

// state is where a connection is on its way between the engine, a worker and the user.
//
//	state      held by      meaning                                 leaves by
//	new        accept loop  the user's hooks are called             keep: fresh, or parked if it has had
//	                                                                requests, or handshake if a hook has
//	                                                                begun one; close: shut
//	fresh      Queue        nothing was ever served; callback armed handshake: handshake, over TLS;
//	                                                                serve: serving; takeOut: takenOut
//	handshake  Queue        a goroutine of ours runs it (TLS)       serve: serving
//	parked     Queue        between two requests; callback armed    serve: serving; takeOut: takenOut
//	takenOut   HandOver     it is offered to another process        putBack: parked, or fresh;
//	                                                                close: closing; closeTakenOut: closed
//	closing    HandOver     the same, and Close was called, which   closeTakenOut: closed
//	                        HandOver makes up for
//	serving    a worker     requests are read or served, or are     notify: notified; rest: parked, or
//	           or workers,  about to be, or an answer is            fresh; close: shut; hijack: hijacked;
//	           or an Answer detached: see Answer                    takeOutServed: takenOut
//	notified   a worker     the same, and the callback, armed       resumeServing: serving; close: shut;
//	                        while a handler ran, has come           hijack, takeOutServed: as from serving
//	shut       a worker,    closed; StateClosed is still to come    end: closed; hijack: hijacked
//	           accept loop
//	hijacked   the user     all calls go straight through           (final)
//	closed     -            StateClosed was reported, or will be    (final)
//
// close leaves every state but the final ones. A connection that a worker has becomes shut, since the
// worker reports StateClosed. One that HandOver has becomes closing: its descriptor is being passed on,
// and stays open until then. Any other becomes closed.
type state uint8

const (
	stateNew state = iota
	stateFresh
	stateHandshake
	stateParked
	stateTakenOut
	stateClosing
	stateServing
	stateNotified
	stateShut
	stateHijacked
	stateClosed

	stateCount = iota
)

var stateNames = [stateCount]string{
	"new", "fresh", "handshake", "parked", "takenOut", "closing", "serving", "notified", "shut", "hijacked", "closed",
}

func (s state) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// set is a set of states.
type set uint32

func setOf(list ...state) (s set) {
	for _, of := range list {
		s |= 1 << of
	}
	return s
}

func (s set) has(of state) bool { return s>>of&1 != 0 }

// The states of connections that a worker has, and of those that are kept without one.
var (
	servedStates = setOf(stateServing, stateNotified)
	keptStates   = setOf(stateFresh, stateHandshake, stateParked, stateTakenOut)
)

// connState is a state and its bits, packed into a word, so that a request changes it by
// compare-and-swap:
//
//	bits    meaning
//	0-3     the state
//	4       began: a request has been answered, ever
//	5       disarmed: the callback of a connection that is takenOut is not armed, and will not come
//	6       mayFollow: an empty line may follow the body of the last request, which was a POST, or one that
//	        another process has served
//	7       given: net/http has a connection that is hijacked, and has not closed it yet
//
// Every change is one of the functions below. They are pure: the result takes effect when Conn swaps it
// in. One that returns false has no meaning in this state: another goroutine was faster.
type connState uint32

const (
	stateMask connState = 1<<4 - 1
	began     connState = 1 << 4
	disarmed  connState = 1 << 5
	mayFollow connState = 1 << 6
	given     connState = 1 << 7
)

func (s connState) state() state             { return state(s & stateMask) }
func (s connState) has(flags connState) bool { return s&flags == flags }
func (s connState) to(st state) connState    { return s&^stateMask | connState(st) }

// String is for failures.
func (s connState) String() string {
	text := s.state().String()
	for i, name := range []string{" began", " disarmed", " mayFollow", " given"} {
		if s.has(began << i) {
			text += name
		}
	}
	return text
}

// # While it waits

// keep is for a new connection after its hooks. One that comes from another process may have had
// requests there.
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

// # With HandOver

// takeOut is for a connection that waits for a request.
func (s connState) takeOut() (connState, bool) {
	return s.to(stateTakenOut), s.state() == stateFresh || s.state() == stateParked
}

// takeOutServed is for one that a worker gives to HandOver instead of letting it wait.
func (s connState) takeOutServed() (connState, bool) {
	if s.state() == stateNotified {
		return s.to(stateTakenOut) | disarmed, true
	}
	return s.to(stateTakenOut), s.state() == stateServing
}

// disarm is for a callback that has come, or was cancelled.
func (s connState) disarm() (connState, bool) { return s | disarmed, s.state() == stateTakenOut }

// putBack is for a connection that no other process has taken over: it waits again.
func (s connState) putBack() (connState, bool) {
	to := (s &^ disarmed).to(stateFresh)
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

// serve is for a connection that has something to read, or may have now that its handshake is over.
func (s connState) serve() (connState, bool) {
	return s.to(stateServing), keptStates.has(s.state()) && s.state() != stateTakenOut
}

// notify is for the callback that comes while a worker has the connection.
func (s connState) notify() (connState, bool) { return s.to(stateNotified), s.state() == stateServing }

// resumeServing is for a worker that is about to read.
func (s connState) resumeServing() (connState, bool) {
	return s.to(stateServing), servedStates.has(s.state())
}

// rest is for a connection that waits for more. Its callback is armed, and has not come.
func (s connState) rest() (connState, bool) {
	if s.has(began) {
		return s.to(stateParked), s.state() == stateServing
	}
	return s.to(stateFresh), s.state() == stateServing
}

// serveRequest is for a request whose header a worker has.
func (s connState) serveRequest(method string) (connState, bool) {
	if method == "POST" {
		return s | mayFollow, servedStates.has(s.state())
	}
	return s &^ mayFollow, servedStates.has(s.state())
}

// skipEmptyLine is for the empty line after the body of a POST: no other is skipped.
func (s connState) skipEmptyLine() (connState, bool) {
	return s &^ mayFollow, servedStates.has(s.state())
}

// answerServed is for a request that a worker has answered.
func (s connState) answerServed() (connState, bool) { return s | began, servedStates.has(s.state()) }

// give is for a connection that speaks a protocol of net/http's.
func (s connState) give() (connState, bool) {
	to, ok := s.hijack()
	return to | given, ok
}

// endGiven is for such a connection that net/http has closed.
func (s connState) endGiven() (connState, bool) { return s &^ given, s.has(given) }

// hijack is for a connection that a handler hijacks, or that becomes another protocol's.
func (s connState) hijack() (connState, bool) {
	return s.to(stateHijacked), servedStates.has(s.state()) || s.state() == stateShut
}

// # The end

// close is for a connection that is closed, wherever it is.
func (s connState) close() (connState, bool) {
	switch st := s.state(); {
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

// end is for a connection that will not be used again: a worker, or the accept loop, is done with it.
func (s connState) end() (connState, bool) { return s.to(stateClosed), s.state() == stateShut }
