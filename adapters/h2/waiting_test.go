package h2

import "testing"

// TestWaiting: calls of Open get room in the order in which they came, one that gives up is passed over,
// and room that was granted is kept.
func TestWaiting(t *testing.T) {
	var w waiting
	if w.unreserve(); w.reserved != 0 {
		t.Errorf("got %d reservations without any", w.reserved)
	}
	first, second, third := w.enter(), w.enter(), w.enter()
	w.leave(second)
	for i, o := range []opener{first, third} {
		w.grant()
		select {
		case <-o:
		default:
			t.Fatal("another opener has got the room")
		}
		if w.granted != 1 || len(w.openers) != 1-i {
			t.Fatalf("got %d granted, and %d openers, want 1 and %d", w.granted, len(w.openers), 1-i)
		}
		if w.leave(o); w.granted != 0 {
			t.Errorf("got %d granted, want none", w.granted)
		}
	}
}
