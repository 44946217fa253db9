package h2

import "testing"

// TestWaiting: calls of Open get room in the order in which they came, one that gives up is passed over,
// and room that was granted or reserved is no other's.
func TestWaiting(t *testing.T) {
	var w waiting
	if w.unreserve(); w.reserved != 0 {
		t.Errorf("got %d reservations without any", w.reserved)
	}
	first, second, third := w.enter(), w.enter(), w.enter()
	w.leave(second)
	w.grant()
	if !first.has || third.has || w.granted != 1 {
		t.Fatalf("got %v and %v with %d granted, want the first alone and 1", first.has, third.has, w.granted)
	}
	<-first.granted
	w.leave(first)
	w.grant()
	<-third.granted
	if w.granted != 1 || len(w.openers) > 0 {
		t.Errorf("got %d granted, and %d openers, want 1 and none", w.granted, len(w.openers))
	}
	if w.leave(third); w.granted != 0 {
		t.Errorf("got %d granted, want none", w.granted)
	}
}
