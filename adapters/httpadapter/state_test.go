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

// event is a change of a connState, with the change's arguments.
type event struct {
	name  string
	apply func(s connState) (connState, bool)
}

// always is an event that has a meaning in every state.
func always(f func(s connState) connState) func(connState) (connState, bool) {
	return func(s connState) (connState, bool) { return f(s), true }
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
		{"announce", connState.announce},
		{"beginWait, empty buffer", func(s connState) (connState, bool) { return s.beginWait(probe.ReadBytes, 7, probe.Once) }},
		{"beginWait", func(s connState) (connState, bool) { return s.beginWait(probe.ReadBytes-1, 7, probe.Once) }},
		{"beginWait, one byte", func(s connState) (connState, bool) { return s.beginWait(1, 7, probe.Twice) }},
		{"beginWait, unknown", func(s connState) (connState, bool) { return s.beginWait(probe.ReadBytes, 7, probe.Unknown) }},
		{"timeOut", always(func(s connState) connState { return s.timeOut(probe.ReadBytes, probe.Once) })},
		{"timeOut, first of two", always(func(s connState) connState { return s.timeOut(probe.ReadBytes, probe.Twice) })},
		{"timeOut, with bytes", always(func(s connState) connState { return s.timeOut(probe.ReadBytes-1, probe.Twice) })},
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
		{"expireRead", connState.expireRead},
		{"endWait, request", always(func(s connState) connState { return s.endWait(get, probe.ReadBytes, false) })},
		{"endWait, rest of a request", always(func(s connState) connState { return s.endWait(get, probe.ReadBytes-1, false) })},
		{"endWait, HTTP/2", always(func(s connState) connState { return s.endWait(h2, probe.ReadBytes, false) })},
		{"endWait, park", always(func(s connState) connState { return s.endWait(nil, probe.ReadBytes, true) })},
		{"endWait, error", always(func(s connState) connState { return s.endWait(nil, probe.ReadBytes, false) })},
		{"readMore", connState.readMore},
		{"completeHeader", connState.completeHeader},
		{"answer", connState.answer},
		{"finish", connState.finish},
		{"setReadDeadline", always(func(s connState) connState { to, _ := s.setReadDeadline(probe.Once); return to })},
		{"setReadDeadline, two", always(func(s connState) connState { to, _ := s.setReadDeadline(probe.Twice); return to })},
		{"setReadDeadline, three", always(func(s connState) connState { to, _ := s.setReadDeadline(probe.Thrice); return to })},
		{"endLease", connState.endLease},
		{"giveBack", connState.giveBack},
		{"hijack", connState.hijack},
		{"close", connState.close},
		{"closeLeased", connState.closeLeased},
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
		{in(stateQueued, began, dated, recentlyUsed), "lease", "opening began unannounced"},
		{in(stateQueued, began).at(1), "lease", "opening began recentlyUsed unannounced"},
		{in(stateClosed), "lease", none},
		{in(stateQueued), "giveAway", "http2 unannounced"},
		{in(stateOpening, unannounced), "announce", "opening"},
		{in(stateOpening), "announce", none},

		// One deadline and an empty buffer: with anything less the connection must not be parked.
		{in(stateIdle, began, dated), "beginWait, empty buffer", "idle began dated waiting parkable"},
		{in(stateIdle, began, dated), "beginWait", "idle began dated waiting"},
		{in(stateIdle, began), "beginWait, empty buffer", "idle began waiting"},
		{in(stateBusy, began, dated), "beginWait, empty buffer", none},
		{in(stateOpening), "beginWait, empty buffer", "opening waiting parkable"},
		{in(stateOpening, began), "beginWait", "opening began waiting parkable"},
		{in(stateShut, dated), "beginWait, empty buffer", none},
		{in(stateOpening), "beginWait, unknown", "opening waiting"},
		{in(stateIdle, dated), "beginWait, unknown", "idle dated waiting"},

		// Two deadlines and no buffer: the second wait may be parked as well.
		{in(stateIdle, dated, waiting, parkable), "timeOut, first of two", "idle dated bare"},
		{in(stateIdle, dated, waiting), "timeOut, with bytes", "idle dated"},
		{in(stateIdle, waiting), "timeOut, first of two", "idle"},
		{in(stateIdle, dated, waiting, parkable), "timeOut", "idle dated"},
		{in(stateOpening, dated, waiting, parkable), "timeOut, first of two", "opening dated"},
		{in(stateIdle), "setReadDeadline, two", "idle dated"},
		{in(stateIdle), "setReadDeadline, three", "idle predated"},
		{in(stateIdle, predated), "setReadDeadline, three", "idle predated dated"},
		{in(stateIdle, predated, dated), "setReadDeadline, three", "busy predated dated"},
		{in(stateIdle, predated), "beginWait, empty buffer", "idle predated waiting"},
		{in(stateBusy, predated, dated, answered), "finish", "idle began"},
		{in(stateIdle, dated, bare), "setReadDeadline", "idle bare"},
		{in(stateIdle, dated, bare), "beginWait, empty buffer", "idle dated bare waiting"},
		{in(stateIdle, dated, bare), "beginWait, one byte", "idle dated bare waiting"},
		{in(stateIdle, dated), "beginWait, one byte", "idle dated waiting"},
		{in(stateIdle, bare), "beginWait, one byte", "idle bare waiting parkable"},
		{in(stateIdle, bare), "beginWait, empty buffer", "idle bare waiting"},
		{in(stateIdle, bare), "setReadDeadline", "busy bare"},
		{in(stateIdle, bare, waiting, parkable), "setReadDeadline", "idle bare waiting parkable"},
		{in(stateIdle, bare, waiting, parkable), "endWait, park", "ending bare"},
		{in(stateIdle, bare, waiting, parkable), "endWait, error", "idle bare"},
		{in(stateQueued, began, bare), "lease", "opening began unannounced"},
		{in(stateIdle, dated), "setReadDeadline", "busy dated"},
		{in(stateIdle), "setReadDeadline", "idle dated"},
		{in(stateIdle, dated, waiting), "setReadDeadline", "idle dated waiting"},

		{in(stateIdle, dated, waiting, parkable), "expireRead", "idle dated waiting parkable expired"},
		{in(stateIdle, dated, waiting, parkable, expired), "expireRead", none},
		{in(stateIdle, dated, waiting), "expireRead", none},
		{in(stateBusy, dated), "expireRead", none},

		{in(stateIdle, began, dated, waiting, parkable, expired), "endWait, park", "ending began dated"},
		{in(stateIdle, began, dated, waiting, parkable), "endWait, error", "idle began dated"},
		{in(stateIdle, began, dated, waiting, parkable, expired), "endWait, request", "busy began dated sniffed"},
		{in(stateIdle, began, dated, waiting), "endWait, rest of a request", "busy began dated sniffed"},
		{in(stateIdle, began, dated, waiting, parkable), "endWait, HTTP/2", "http2 began dated sniffed"},
		{in(stateOpening, waiting, parkable), "endWait, request", "busy sniffed inHeader"},
		{in(stateOpening, began, waiting, parkable), "endWait, request", "arrived began sniffed inHeader"},
		{in(stateOpening, waiting, parkable, expired), "endWait, park", "ending"},
		{in(stateShut, began, dated, waiting, parkable, expired), "endWait, park", "shut began dated"},
		{in(stateClosedInHeader, began, waiting, parkable), "endWait, request", "closedInHeader began"},

		{in(stateArrived, began, inHeader), "readMore", "busy began inHeader"},
		{in(stateArrived, began, inHeader), "setReadDeadline", "busy began"},
		{in(stateBusy, inHeader), "setReadDeadline", "busy"},
		{in(stateBusy, inHeader), "completeHeader", "busy"},
		{in(stateBusy), "answer", "busy answered"},
		{in(stateIdle), "answer", none},
		{in(stateBusy, dated, sniffed, answered), "finish", "idle began"},
		{in(stateBusy), "finish", none}, // owned by the user
		{in(stateParked, began), "finish", none},

		{in(stateEnding, began, dated), "endLease", "ended began dated"},
		{in(stateIdle, began, dated), "endLease", none},
		{in(stateEnded, began, dated), "giveBack", "parked began dated"},
		{in(stateEnded), "giveBack", "fresh"},
		{in(stateEnding, began), "giveBack", none},

		{in(stateBusy), "hijack", "hijacked"},
		{in(stateIdle, began), "hijack", "hijacked began"},
		{in(stateIdle, began, waiting), "hijack", none},
		{in(stateParked, began), "hijack", none},
		{in(stateHijacked), "hijack", none},

		{in(stateNew), "close", "shut"},
		{in(stateFresh), "close", "closed"},
		{in(stateParked, began), "close", "closed began"},
		{in(stateOpening), "close", "shut"},
		{in(stateOpening, began), "close", "closedInHeader began"},
		{in(stateArrived, began), "close", "closedInHeader began"},
		{in(stateIdle, began, waiting), "close", "shut began waiting"},
		{in(stateEnding, began), "close", "shut began"},
		{in(stateEnded, began), "close", "shut began"},
		{in(stateHijacked), "close", none},
		{in(stateClosed), "close", none},
		{in(stateClosedInHeader, began), "setReadDeadline", "shut began"},
		{in(stateShut), "end", "closed"},
		{in(stateClosedInHeader), "end", "closed"},
		{in(stateEnded), "end", "closed"},
		{in(stateBusy), "end", none},
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

// Every change, from any state with any flags, is an edge of the table, and each edge is a change.
func TestStateEdges(t *testing.T) {
	var seen [stateCount]states
	for from := range connState(1) << methodShift {
		if from.state() >= stateCount {
			continue
		}
		for _, e := range events() {
			to, ok := e.apply(from)
			a, b := from.state(), to.state()
			if !ok || a == b {
				continue
			}
			if !edges[a].has(b) {
				t.Fatalf("%v, %s: became %v, which is no edge of the table", from, e.name, to)
			}
			seen[a] |= setOf(b)
		}
	}
	for s := range stateCount {
		for to := range stateCount {
			if s, to := state(s), state(to); edges[s].has(to) && !seen[s].has(to) {
				t.Errorf("nothing makes %v of %v, want a change or no edge", to, s)
			}
		}
	}
}

// The names match the constants.
func TestStateNames(t *testing.T) {
	if got, want := in(stateClosed, began, disarmed).String(), "closed began disarmed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := state(stateCount).String(), "state(20)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStatePacking checks that the parts of a connState don't interfere with each other.
func TestStatePacking(t *testing.T) {
	for _, full := range []connState{0, ^connState(0)} {
		for _, flag := range []connState{began, predated, dated, bare, waiting, parkable, expired, recentlyUsed, sniffed, inHeader, answered, unannounced, disarmed} {
			w := full.to(stateIdle).at(tickMask - 1).withMethod(methodPOST)
			before := fmt.Sprint(w.state(), w.since(0), w.method())
			for range 2 {
				w = w.set(flag)
				if !w.has(flag) || w&^flag != w.clear(flag) || w.clear(flag).has(flag) {
					t.Errorf("flag %v of %v", flag, w)
				}
				if got := fmt.Sprint(w.state(), w.since(0), w.method()); got != before {
					t.Errorf("with flag %b: got %s, want %s", flag, got, before)
				}
				w = w.clear(flag)
			}
		}
		w := full.at(5).to(stateClosed).withMethod(methodOther)
		if w.since(7) != 2 || w.since(4) != tickMask || w.state() != stateClosed || w.method() != methodOther {
			t.Errorf("got state %v, method %d, %d and %d ticks", w.state(), w.method(), w.since(7), w.since(4))
		}
	}
}

// A checking build does not allow arbitrary changes of state.
func TestStateChecks(t *testing.T) {
	if !invariants.Enabled {
		t.Skip("only with -tags invariants")
	}
	for _, bad := range []struct{ from, to connState }{
		{in(stateParked), in(stateBusy)},
		{in(stateClosed), in(stateQueued)},
		{in(stateIdle), in(stateIdle, parkable)},
		{in(stateIdle, waiting), in(stateIdle, waiting, expired)},
		{in(stateIdle, waiting), in(stateBusy, waiting)},
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
