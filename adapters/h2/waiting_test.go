package h2

import "testing"

// TestWaiting: calls of Open get room in the order in which they came, one that gives up is passed over,
// and room that was granted or reserved is no other's.
func TestWaiting(t *testing.T) {
	var none *waiting
	if none.taken() != 0 || none.reservations() != 0 || none.hasOpeners() || none.nextUnstarted() != nil {
		t.Error("a connection where nothing waits has something")
	}
	none.unreserve() // has no effect
	w := &waiting{reserved: 1}
	w.unreserve()
	w.unreserve()
	if w.reservations() != 0 {
		t.Errorf("got %d reservations, want 0", w.reservations())
	}
	w.reserved = 1
	first, second, third := w.enter(), w.enter(), w.enter()
	w.leave(second)
	w.grant()
	if !first.has || third.has || w.taken() != 2 {
		t.Fatalf("got %v and %v with %d taken, want the first alone and 2", first.has, third.has, w.taken())
	}
	<-first.granted
	w.leave(first)
	w.grant()
	<-third.granted
	if w.taken() != 2 || w.hasOpeners() {
		t.Errorf("got %d taken, and openers: %v, want 2 and none", w.taken(), w.hasOpeners())
	}
	w.leave(third)
	if w.taken() != 1 {
		t.Errorf("got %d taken, want the reservation", w.taken())
	}
	streams := make([]*Stream, 2)
	for i := range streams {
		streams[i] = new(Stream)
		w.unstarted = append(w.unstarted, streams[i])
	}
	for i, want := range append(streams, nil) {
		if got := w.nextUnstarted(); got != want {
			t.Errorf("stream %d: got %p, want %p", i, got, want)
		}
	}
}
