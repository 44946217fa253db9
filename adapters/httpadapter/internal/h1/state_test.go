package h1

import (
	"fmt"
	"testing"
)

// in returns a connState: a state with flags.
func in(s state, flags ...connState) (cs connState) {
	cs = cs.to(s)
	for _, f := range flags {
		cs |= f
	}
	return cs
}

// event is a change of a connState, with the change's arguments.
type event struct {
	name  string
	apply func(s connState) (connState, bool)
}

// events returns all events.
func events() []event {
	return []event{
		{"keep", func(s connState) (connState, bool) { return s.keep(false) }},
		{"keep, handshaking", func(s connState) (connState, bool) { return s.keep(true) }},
		{"handshake", connState.handshake},
		{"serve", connState.serve},
		{"notify", connState.notify},
		{"resumeServing", connState.resumeServing},
		{"serveRequest, POST", func(s connState) (connState, bool) { return s.serveRequest("POST") }},
		{"serveRequest", func(s connState) (connState, bool) { return s.serveRequest("GET") }},
		{"skipEmptyLine", connState.skipEmptyLine},
		{"answerServed", connState.answerServed},
		{"rest", connState.rest},
		{"takeOut", connState.takeOut},
		{"takeOutServed", connState.takeOutServed},
		{"disarm", connState.disarm},
		{"putBack", connState.putBack},
		{"closeTakenOut", connState.closeTakenOut},
		{"hijack", connState.hijack},
		{"give", connState.give},
		{"endGiven", connState.endGiven},
		{"close", connState.close},
		{"closeIdle", connState.closeIdle},
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

		{in(stateServing), "serveRequest, POST", "serving mayFollow"},
		{in(stateServing, mayFollow), "serveRequest", "serving"},
		{in(stateServing, began, mayFollow), "skipEmptyLine", "serving began"},
		{in(stateFresh), "serve", "serving"},
		{in(stateParked, began), "serve", "serving began"},
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
		{in(stateNew, began), "keep", "parked began"},
		{in(stateFresh), "takeOut", "takenOut"},
		{in(stateParked, began), "takeOut", "takenOut began"},
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

		{in(stateParked, began), "hijack", none},
		{in(stateHijacked), "hijack", none},

		{in(stateNew), "close", "shut"},
		{in(stateFresh), "close", "closed"},
		{in(stateParked, began), "close", "closed began"},
		{in(stateHijacked), "close", none},
		{in(stateClosed), "close", none},
		{in(stateServing), "give", "hijacked given"},
		{in(stateParked), "give", none},
		{in(stateHijacked, given), "endGiven", "hijacked"},
		{in(stateHijacked), "endGiven", none},
		{in(stateParked, began), "closeIdle", "closed began"},
		{in(stateServing), "closeIdle", none},
		{in(stateShut), "end", "closed"},
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

// edges is the table of state.go: where each state may lead.
var edges = [stateCount]set{
	stateNew:       setOf(stateFresh, stateHandshake, stateParked, stateShut),
	stateFresh:     setOf(stateHandshake, stateServing, stateTakenOut, stateClosed),
	stateHandshake: setOf(stateServing, stateClosed),
	stateParked:    setOf(stateServing, stateTakenOut, stateClosed),
	stateTakenOut:  setOf(stateFresh, stateParked, stateClosing, stateClosed),
	stateClosing:   setOf(stateClosed),
	stateServing:   setOf(stateNotified, stateFresh, stateParked, stateTakenOut, stateShut, stateHijacked),
	stateNotified:  setOf(stateServing, stateTakenOut, stateShut, stateHijacked),
	stateShut:      setOf(stateClosed, stateHijacked),
}

// mayBeDisarmed are the states that wait for no callback.
var mayBeDisarmed = setOf(stateTakenOut, stateClosing, stateClosed)

// TestStateEdges: every change, from any state with any flags, is an edge of the table, and each edge
// is a change. A connection that waits for its callback is never disarmed.
func TestStateEdges(t *testing.T) {
	type step struct{ from, to state }
	seen := make(map[step]bool)
	for from := range given << 1 {
		if from.state() >= stateCount {
			continue
		}
		for _, e := range events() {
			to, ok := e.apply(from)
			if ok && to.has(disarmed) && !mayBeDisarmed.has(to.state()) && (!from.has(disarmed) || mayBeDisarmed.has(from.state())) {
				t.Errorf("%v, %s: became %v, which waits for a callback", from, e.name, to)
			}
			if !ok || (from^to)&stateMask == 0 {
				continue
			}
			if !edges[from.state()].has(to.state()) {
				t.Fatalf("%v, %s: became %v, which is no edge of the table", from, e.name, to)
			}
			seen[step{from.state(), to.state()}] = true
		}
	}
	for from := range state(stateCount) {
		for to := range state(stateCount) {
			if edges[from].has(to) && !seen[step{from, to}] {
				t.Errorf("nothing makes %v of %v, want a change or no edge", to, from)
			}
		}
	}
}

// The names match the constants.
func TestStateNames(t *testing.T) {
	if got, want := in(stateClosed, began, disarmed, mayFollow).String(), "closed began disarmed mayFollow"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := fmt.Sprint(stateHandshake, stateShut, state(stateCount)), "handshake shut state(11)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
