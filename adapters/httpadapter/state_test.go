package httpadapter

import (
	"fmt"
	"testing"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/invariants"
)

// in returns a connState: a state with flags.
func in(s state, flags ...connState) (cs connState) {
	cs = cs.to(s)
	for _, f := range flags {
		cs = cs.set(f)
	}
	return cs
}

// leased returns a connState: a phase with flags.
func leased(s phase, flags ...leaseState) connState {
	var ls leaseState
	for _, f := range flags {
		ls = ls.set(f)
	}
	return connState(ls.to(s))
}

// leftover returns s with flags of an earlier lease, and at the same whose wait began at a tick.
func leftover(s connState, flags ...leaseState) connState {
	for _, f := range flags {
		s |= connState(f)
	}
	return s
}

func at(s connState, tick uint32) connState { return connState(leaseState(s).at(tick)) }

// event is a change of a connState, with the change's arguments.
type event struct {
	name  string
	apply func(s connState) (connState, bool)
}

// always is an event that net/http's side makes without a look at the state.
func always(f func(s leaseState) leaseState) func(connState) (connState, bool) {
	return func(s connState) (connState, bool) { return connState(f(leaseState(s))), true }
}

// inLease is an event of net/http's side, as conn.changeLease makes it.
func inLease(f func(s leaseState) (leaseState, bool)) func(connState) (connState, bool) {
	return func(s connState) (connState, bool) {
		to, ok := f(leaseState(s))
		return connState(to), ok && s.state() == stateLeased
	}
}

// events returns all events.
func events() []event {
	get := []byte("GET / HTTP/1.1\r\n")
	h2 := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	return []event{
		{"keep", func(s connState) (connState, bool) { return s.keep(false) }},
		{"keep, handshaking", func(s connState) (connState, bool) { return s.keep(true) }},
		{"handshake", connState.handshake},
		{"enqueue", connState.enqueue},
		{"lease", func(s connState) (connState, bool) { return s.lease(parkTicksRecent) }},
		{"giveAway", connState.giveAway},
		{"announce", inLease(leaseState.announce)},
		{"beginWait, empty buffer", inLease(func(s leaseState) (leaseState, bool) { return s.beginWait(probe.ReadBytes, 7, probe.Once) })},
		{"beginWait", inLease(func(s leaseState) (leaseState, bool) { return s.beginWait(probe.ReadBytes-1, 7, probe.Once) })},
		{"beginWait, one byte", inLease(func(s leaseState) (leaseState, bool) { return s.beginWait(1, 7, probe.Twice) })},
		{"beginWait, unknown", inLease(func(s leaseState) (leaseState, bool) { return s.beginWait(probe.ReadBytes, 7, probe.Unknown) })},
		{"timeOut", always(func(s leaseState) leaseState { return s.timeOut(probe.ReadBytes, probe.Once) })},
		{"timeOut, first of two", always(func(s leaseState) leaseState { return s.timeOut(probe.ReadBytes, probe.Twice) })},
		{"timeOut, with bytes", always(func(s leaseState) leaseState { return s.timeOut(probe.ReadBytes-1, probe.Twice) })},
		{"serve", connState.serve},
		{"notify", connState.notify},
		{"resumeServing", connState.resumeServing},
		{"serveRequest, POST", func(s connState) (connState, bool) { return s.serveRequest("POST") }},
		{"serveRequest", func(s connState) (connState, bool) { return s.serveRequest("GET") }},
		{"answerServed", connState.answerServed},
		{"rest", connState.rest},
		{"takeOut", connState.takeOut},
		{"takeOutServed", connState.takeOutServed},
		{"disarm", connState.disarm},
		{"putBack", connState.putBack},
		{"closeTakenOut", connState.closeTakenOut},
		{"expireRead", inLease(leaseState.expireRead)},
		{"endWait, request", always(func(s leaseState) leaseState { return s.endWait(get, probe.ReadBytes, false) })},
		{"endWait, rest of a request", always(func(s leaseState) leaseState { return s.endWait(get, probe.ReadBytes-1, false) })},
		{"endWait, HTTP/2", always(func(s leaseState) leaseState { return s.endWait(h2, probe.ReadBytes, false) })},
		{"endWait, park", always(func(s leaseState) leaseState { return s.endWait(nil, probe.ReadBytes, true) })},
		{"endWait, error", always(func(s leaseState) leaseState { return s.endWait(nil, probe.ReadBytes, false) })},
		{"readMore", inLease(leaseState.readMore)},
		{"completeHeader", inLease(leaseState.completeHeader)},
		{"answer", inLease(leaseState.answer)},
		{"finish", inLease(leaseState.finish)},
		{"setReadDeadline", always(func(s leaseState) leaseState { to, _ := s.setReadDeadline(probe.Once); return to })},
		{"setReadDeadline, two", always(func(s leaseState) leaseState { to, _ := s.setReadDeadline(probe.Twice); return to })},
		{"setReadDeadline, three", always(func(s leaseState) leaseState { to, _ := s.setReadDeadline(probe.Thrice); return to })},
		{"endLease", inLease(leaseState.endLease)},
		{"giveBack", connState.giveBack},
		{"hijack", connState.hijack},
		{"close", connState.close},
		{"closeLeased", inLease(leaseState.closeLeased)},
		{"end", connState.end},
	}
}

func TestStateChanges(t *testing.T) {
	const none = "-" // the event has no meaning
	for _, tt := range []struct {
		from  connState
		event string
		want  string
	}{
		{in(stateNew), "keep", "fresh"},
		{in(stateNew), "keep, handshaking", "handshake"},
		{in(stateShut), "keep", none},
		{in(stateFresh), "handshake", "handshake"},
		{in(stateParked, began), "handshake", none},
		{in(stateFresh), "enqueue", "queued"},
		{in(stateHandshake), "enqueue", "queued"},
		{in(stateParked, began), "enqueue", "queued began"},
		{in(stateClosed), "enqueue", none},

		{in(stateFresh), "serve", "serving"},
		{in(stateParked, began), "serve", "serving began"},
		{in(stateQueued), "serve", none},
		{in(stateServing), "notify", "notified"},
		{in(stateNotified), "notify", none},
		{in(stateParked), "notify", none},
		{in(stateNotified, began), "resumeServing", "serving began"},
		{in(stateShut), "resumeServing", none},
		{in(stateServing), "answerServed", "serving began"},
		{in(stateNotified), "answerServed", "notified began"},
		{in(stateShut), "answerServed", none},
		{in(stateServing), "rest", "fresh"},
		{in(stateServing, began), "rest", "parked began"},
		{in(stateNotified, began), "rest", none}, // there is more to read
		{in(stateServing, began), "enqueue", "queued began"},
		{in(stateNotified), "enqueue", "queued"},
		{in(stateNew, began), "keep", "parked began"},
		{in(stateFresh), "takeOut", "takenOut"},
		{in(stateParked, began), "takeOut", "takenOut began"},
		{in(stateQueued), "takeOut", none},
		{in(stateServing), "takeOut", none},
		{in(stateServing, began), "takeOutServed", "takenOut began"},
		{in(stateNotified, began), "takeOutServed", "takenOut began disarmed"},
		{in(stateShut), "takeOutServed", none},
		{in(stateTakenOut), "disarm", "takenOut disarmed"},
		{in(stateParked), "disarm", none}, // it wakes the connection
		{in(stateTakenOut, disarmed), "putBack", "fresh"},
		{in(stateTakenOut, began), "putBack", "parked began"},
		{in(stateClosing, began), "putBack", none},
		{in(stateTakenOut, began), "close", "closing began"},
		{in(stateClosing), "close", none},
		{in(stateTakenOut), "closeTakenOut", "closed"},
		{in(stateClosing), "closeTakenOut", "closed"},
		{in(stateParked), "closeTakenOut", none},
		{in(stateTakenOut), "hijack", none},

		{in(stateServing), "hijack", "hijacked"},
		{in(stateServing), "close", "shut"},
		{in(stateNotified, began), "close", "shut began"},

		// A lease's leftovers do not count for the next.
		{in(stateQueued), "lease", "opening unannounced"},
		{leftover(in(stateQueued, began), dated, recentlyUsed), "lease", "opening began unannounced"},
		{at(in(stateQueued, began), 1), "lease", "opening began recentlyUsed unannounced"},
		{in(stateClosed), "lease", none},
		{in(stateQueued), "giveAway", "http2 unannounced"},
		{leased(phaseOpening, unannounced), "announce", "opening"},
		{leased(phaseOpening), "announce", none},

		// One deadline and an empty buffer: with anything less the connection must not be parked.
		{leased(phaseIdle, leaseBegan, dated), "beginWait, empty buffer", "idle began dated waiting parkable"},
		{leased(phaseIdle, leaseBegan, dated), "beginWait", "idle began dated waiting"},
		{leased(phaseIdle, leaseBegan), "beginWait, empty buffer", "idle began waiting"},
		{leased(phaseBusy, leaseBegan, dated), "beginWait, empty buffer", none},
		{leased(phaseOpening), "beginWait, empty buffer", "opening waiting parkable"},
		{leased(phaseOpening, leaseBegan), "beginWait", "opening began waiting parkable"},
		{leased(phaseShut, dated), "beginWait, empty buffer", none},
		{leased(phaseOpening), "beginWait, unknown", "opening waiting"},
		{leased(phaseIdle, dated), "beginWait, unknown", "idle dated waiting"},

		// Two deadlines and no buffer: the second wait may be parked as well.
		{leased(phaseIdle, dated, waiting, parkable), "timeOut, first of two", "idle dated bare"},
		{leased(phaseIdle, dated, waiting), "timeOut, with bytes", "idle dated"},
		{leased(phaseIdle, waiting), "timeOut, first of two", "idle"},
		{leased(phaseIdle, dated, waiting, parkable), "timeOut", "idle dated"},
		{leased(phaseOpening, dated, waiting, parkable), "timeOut, first of two", "opening dated"},
		{leased(phaseIdle), "setReadDeadline, two", "idle dated"},
		{leased(phaseIdle), "setReadDeadline, three", "idle predated"},
		{leased(phaseIdle, predated), "setReadDeadline, three", "idle predated dated"},
		{leased(phaseIdle, predated, dated), "setReadDeadline, three", "busy predated dated"},
		{leased(phaseIdle, predated), "beginWait, empty buffer", "idle predated waiting"},
		{leased(phaseBusy, predated, dated, answered), "finish", "idle began"},
		{leased(phaseIdle, dated, bare), "setReadDeadline", "idle bare"},
		{leased(phaseIdle, dated, bare), "beginWait, empty buffer", "idle dated bare waiting"},
		{leased(phaseIdle, dated, bare), "beginWait, one byte", "idle dated bare waiting"},
		{leased(phaseIdle, dated), "beginWait, one byte", "idle dated waiting"},
		{leased(phaseIdle, bare), "beginWait, one byte", "idle bare waiting parkable"},
		{leased(phaseIdle, bare), "beginWait, empty buffer", "idle bare waiting"},
		{leased(phaseIdle, bare), "setReadDeadline", "busy bare"},
		{leased(phaseIdle, bare, waiting, parkable), "setReadDeadline", "idle bare waiting parkable"},
		{leased(phaseIdle, bare, waiting, parkable), "endWait, park", "ending bare"},
		{leased(phaseIdle, bare, waiting, parkable), "endWait, error", "idle bare"},
		{leftover(in(stateQueued, began), bare), "lease", "opening began unannounced"},
		{leased(phaseIdle, dated), "setReadDeadline", "busy dated"},
		{leased(phaseIdle), "setReadDeadline", "idle dated"},
		{leased(phaseIdle, dated, waiting), "setReadDeadline", "idle dated waiting"},

		{leased(phaseIdle, dated, waiting, parkable), "expireRead", "idle dated waiting parkable expired"},
		{leased(phaseIdle, dated, waiting, parkable, expired), "expireRead", none},
		{leased(phaseIdle, dated, waiting), "expireRead", none},
		{leased(phaseBusy, dated), "expireRead", none},

		{leased(phaseIdle, leaseBegan, dated, waiting, parkable, expired), "endWait, park", "ending began dated"},
		{leased(phaseIdle, leaseBegan, dated, waiting, parkable), "endWait, error", "idle began dated"},
		{leased(phaseIdle, leaseBegan, dated, waiting, parkable, expired), "endWait, request", "busy began dated sniffed"},
		{leased(phaseIdle, leaseBegan, dated, waiting), "endWait, rest of a request", "busy began dated sniffed"},
		{leased(phaseIdle, leaseBegan, dated, waiting, parkable), "endWait, HTTP/2", "http2 began dated sniffed"},
		{leased(phaseOpening, waiting, parkable), "endWait, request", "busy sniffed inHeader"},
		{leased(phaseOpening, leaseBegan, waiting, parkable), "endWait, request", "arrived began sniffed inHeader"},
		{leased(phaseOpening, waiting, parkable, expired), "endWait, park", "ending"},
		{leased(phaseShut, leaseBegan, dated, waiting, parkable, expired), "endWait, park", "shut began dated"},
		{leased(phaseShut), "end", "closed"},
		{leased(phaseShut, leaseBegan), "hijack", "hijacked began"},
		{leased(phaseShut, waiting), "hijack", none},
		{leased(phaseClosedInHeader, leaseBegan, waiting, parkable), "endWait, request", "closedInHeader began"},

		{leased(phaseArrived, leaseBegan, inHeader), "readMore", "busy began inHeader"},
		{leased(phaseArrived, leaseBegan, inHeader), "setReadDeadline", "busy began"},
		{leased(phaseBusy, inHeader), "setReadDeadline", "busy"},
		{leased(phaseBusy, inHeader), "completeHeader", "busy"},
		{leased(phaseBusy), "answer", "busy answered"},
		{leased(phaseIdle), "answer", none},
		{leased(phaseBusy, dated, sniffed, answered), "finish", "idle began"},
		{leased(phaseBusy), "finish", none}, // owned by the user
		{in(stateParked, began), "finish", none},

		{leased(phaseEnding, leaseBegan, dated), "endLease", "ended began dated"},
		{leased(phaseIdle, leaseBegan, dated), "endLease", none},
		{leased(phaseEnded, leaseBegan, dated), "giveBack", "parked began dated"},
		{leased(phaseEnded), "giveBack", "fresh"},
		{leased(phaseEnding, leaseBegan), "giveBack", none},

		{leased(phaseBusy), "hijack", "hijacked"},
		{leased(phaseIdle, leaseBegan), "hijack", "hijacked began"},
		{leased(phaseIdle, leaseBegan, waiting), "hijack", none},
		{in(stateParked, began), "hijack", none},
		{in(stateHijacked), "hijack", none},
		{leased(phaseOpening), "hijack", none},
		{leased(phaseEnding, leaseBegan), "hijack", none},
		{leased(phaseEnded, leaseBegan), "hijack", none},
		{leased(phaseOpening), "end", none},
		{leased(phaseIdle, leaseBegan), "end", none},
		{leased(phaseEnding, leaseBegan), "end", none},

		{in(stateNew), "close", "shut"},
		{in(stateFresh), "close", "closed"},
		{in(stateParked, began), "close", "closed began"},
		{leased(phaseOpening), "close", "shut"},
		{leased(phaseOpening, leaseBegan), "close", "closedInHeader began"},
		{leased(phaseArrived, leaseBegan), "close", "closedInHeader began"},
		{leased(phaseIdle, leaseBegan, waiting), "close", "shut began waiting"},
		{leased(phaseEnding, leaseBegan), "close", "shut began"},
		{leased(phaseEnded, leaseBegan), "close", "shut began"},
		{in(stateHijacked), "close", none},
		{in(stateClosed), "close", none},
		{leased(phaseClosedInHeader, leaseBegan), "setReadDeadline", "shut began"},
		{in(stateShut), "end", "closed"},
		{leased(phaseClosedInHeader), "end", "closed"},
		{leased(phaseEnded), "end", "closed"},
		{leased(phaseBusy), "end", none},
		{in(stateHijacked), "end", none},
	} {
		got := none
		if to, ok := find(t, tt.event).apply(tt.from); ok {
			got = to.String()
		}
		if got != tt.want {
			t.Errorf("%v, %s: got %s, want %s", tt.from, tt.event, got, tt.want)
		}
	}
}

func find(t *testing.T, name string) event {
	t.Helper()
	for _, e := range events() {
		if e.name == name {
			return e
		}
	}
	t.Fatalf("no event %q", name)
	panic("unreachable")
}

// TestStateEdges: every change, from any state or phase with any flags, is an edge of the tables, and
// each edge is a change.
func TestStateEdges(t *testing.T) {
	type step struct {
		a    state
		at   phase
		b    state
		then phase
	}
	seen := make(map[step]bool)
	for from := range connState(1) << methodShift {
		if from.state() >= stateCount || from.state() == stateLeased && (from.phase() == phaseNone || from.phase() >= phaseCount) {
			continue
		}
		for _, e := range events() {
			to, ok := e.apply(from)
			if !ok || (from^to)&stateMask == 0 {
				continue
			}
			if !isEdge(from, to) {
				t.Fatalf("%v, %s: became %v, which is no edge of the tables", from, e.name, to)
			}
			seen[step{from.state(), from.phase(), to.state(), to.phase()}] = true
		}
	}
	for _, from := range places() {
		for _, to := range places() {
			if from != to && isEdge(from, to) && !seen[step{from.state(), from.phase(), to.state(), to.phase()}] {
				t.Errorf("nothing makes %v of %v, want a change or no edge", to, from)
			}
		}
	}
}

// places returns all states, and in place of leased all phases.
func places() (all []connState) {
	for s := range state(stateCount) {
		if s != stateLeased {
			all = append(all, in(s))
		}
	}
	for p := phaseNone + 1; p < phaseCount; p++ {
		all = append(all, leased(p))
	}
	return all
}

// The names match the constants.
func TestStateNames(t *testing.T) {
	if got, want := in(stateClosed, began, disarmed).String(), "closed began disarmed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := leased(phaseClosedInHeader, leaseBegan, predated, unannounced).String(), "closedInHeader began predated unannounced"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := fmt.Sprint(stateLeased, state(stateCount), phase(phaseCount)), "leased state(13) phase(10)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStatePacking checks that the parts of a word don't interfere with each other, in both views.
func TestStatePacking(t *testing.T) {
	flags := []leaseState{leaseBegan, predated, dated, bare, waiting, parkable, expired, recentlyUsed, sniffed, inHeader, answered, unannounced, leaseState(disarmed)}
	parts := func(s leaseState) string {
		return fmt.Sprint(s.phase(), connState(s).state(), s.since(0), s.method())
	}
	for _, full := range []leaseState{0, ^leaseState(0)} {
		for _, w := range []leaseState{full.to(phaseIdle), leaseState(connState(full).to(stateServing))} {
			w = w.at(tickMask - 1).withMethod(methodPOST)
			before := parts(w)
			for _, flag := range flags {
				for range 2 {
					w = w.set(flag)
					if !w.has(flag) || w&^flag != w.clear(flag) || w.clear(flag).has(flag) {
						t.Errorf("flag %v of %v", flag, w)
					}
					if got := parts(w); got != before {
						t.Errorf("with flag %b: got %s, want %s", flag, got, before)
					}
					w = w.clear(flag)
				}
			}
		}
		w := full.at(5).to(phaseShut).withMethod(methodOther)
		if got, want := parts(w), fmt.Sprint("shut leased ", tickMask-4, methodOther); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		closed := connState(w).to(stateClosed)
		if got := closed.phase(); closed.state() != stateClosed || got != phaseNone || leaseState(closed).since(7) != 2 {
			t.Errorf("got state %v, phase %v, %d ticks", closed.state(), got, leaseState(closed).since(7))
		}
	}
}

// A checking build does not allow arbitrary changes of state.
func TestStateChecks(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("only with -tags invariants")
	}
	for _, bad := range []struct{ from, to connState }{
		{in(stateParked), leased(phaseBusy)},
		{in(stateQueued), leased(phaseIdle)},
		{leased(phaseIdle), in(stateParked)},
		{leased(phaseBusy), leased(phaseEnded)},
		{in(stateClosed), in(stateQueued)},
		{leased(phaseIdle), leased(phaseIdle, parkable)},
		{leased(phaseIdle, waiting), leased(phaseIdle, waiting, expired)},
		{leased(phaseIdle, waiting), leased(phaseBusy, waiting)},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v became %v without a panic", bad.from, bad.to)
				}
			}()
			checkChange(bad.from, bad.to)
		}()
	}
}
