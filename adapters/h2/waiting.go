package h2

import "slices"

// waiting has what waits until streams of the connection have ended.
type waiting struct {
	unstarted []*Stream // of a server, until handlers have returned
	openers   []opener  // of a client, until there is room for their streams
	granted   int       // openers that have room, and have not used it yet
	reserved  int       // streams of a client that were reserved, and have not been opened
	roomless  bool      // Reserve has found no room
}

// nothingWaits is what connections have where nothing waits. It never changes.
var nothingWaits waiting

// makeWaiting returns what waits on a connection, to be changed.
func (c *Conn) makeWaiting() *waiting {
	if c.waiting == &nothingWaits {
		c.waiting = new(waiting)
	}
	return c.waiting
}

// unreserve uses a reservation up, if there is one.
func (w *waiting) unreserve() {
	if w.reserved > 0 {
		w.reserved--
	}
}

// An opener is a call of Open that waits. It is closed when there is room, which is kept for it, or when
// there won't be any more.
type opener chan struct{}

func (w *waiting) enter() opener {
	o := make(opener)
	w.openers = append(w.openers, o)
	return o
}

// grant lets the first opener go on.
func (w *waiting) grant() {
	close(w.openers[0])
	w.openers = slices.Delete(w.openers, 0, 1)
	w.granted++
}

// leave is for an opener that goes on: it takes its room, or gives up.
func (w *waiting) leave(o opener) {
	if at := slices.Index(w.openers, o); at >= 0 {
		w.openers = slices.Delete(w.openers, at, at+1)
		return
	}
	w.granted--
}
