package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/seam"
)

// A tally is a socket by which the predecessor tells the successor how many connections it still has,
// so that MaxConns counts once over both processes. It is apart from the handover's own socket, which
// closes when Give and Ready return: connections that can't move stay with the predecessor for as long
// as its program drains them. The kernel closes it when the predecessor ends, in whatever way, and the
// end of the stream counts as no connections.

// counts is a message of a tally.
type counts struct {
	// Open is how many connections each listener has, in the order of the offer.
	Open []int `json:"open"`

	// Moving says that connections still move: the successor may have some of those that are counted.
	Moving bool `json:"moving,omitempty"`
}

const (
	// tallyPause is the time between two messages, at least.
	tallyPause = 100 * time.Millisecond

	// takenMax is how many connections a listener may have: far more than there are descriptors.
	takenMax = 1 << 30

	// countsBytesMax is how long a message of a tally may be: with 20 bytes for each listener it fits.
	countsBytesMax = 20*listenersMax + 100
)

// check fails if the message makes no sense for so many listeners.
func (c *counts) check(listeners int) error {
	if len(c.Open) != listeners {
		return fmt.Errorf("counts of %d listeners, instead of %d", len(c.Open), listeners)
	}
	for i, n := range c.Open {
		if n < 0 || n > takenMax {
			return fmt.Errorf("a count of %d connections of listener %d", n, i)
		}
	}
	return nil
}

// newTaken returns a function that counts the connections of l, also when it is closed. Those that a
// predecessor of this process still has count, too: the successor hears of them from this process.
func newTaken(l net.Listener) func() int {
	limits := seam.LimitsOf(l)
	return func() int {
		if limits == nil {
			return min(openConns(l), takenMax)
		}
		return min(limits.Open()+limits.Elsewhere(), takenMax)
	}
}

// tally is the predecessor's end. A nil *tally does nothing. The goroutine that start starts ends when
// no connections are left, when the successor has ended, or if the handover fails.
type tally struct {
	// immutable
	conn  *net.UnixConn
	taken []func() int  // for each listener
	stop  chan struct{} // closed if the handover fails

	// atomic
	moved atomic.Bool // no connections move any more
}

// newTally returns a tally on the descriptor that has come with ready, which it owns. If that is no
// socket that a tally can be, it logs a line, and the successor counts only its own connections.
func newTally(fds descriptors, servers []Server, dropped map[int]bool) *tally {
	f := os.NewFile(uintptr(fds[0]), "tally")
	fds[0] = -1
	defer f.Close()
	conn, err := tallyConn(f)
	if err != nil {
		slog.Warn("handover: the successor can't be told how many connections stay here", "error", err)
		return nil
	}
	t := &tally{conn: conn, stop: make(chan struct{})}
	for i, s := range servers {
		taken := func() int { return 0 }
		if !dropped[i] {
			taken = newTaken(s.Listener)
		}
		t.taken = append(t.taken, taken)
	}
	return t
}

// tallyConn returns a connection on a copy of f.
func tallyConn(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("a %T is no tally", c)
	}
	if err := checkWire(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// start begins to send. The listeners are paused, and no connection has moved yet. It makes the first
// count itself, since the successor subtracts what has come from that: the goroutine may begin to run
// when some have moved.
func (t *tally) start() {
	if t != nil {
		go t.run(t.count())
	}
}

// end says how the handover has ended. After a failure nothing counts: this process serves on.
func (t *tally) end(ok bool) {
	switch {
	case t == nil:
	case ok:
		t.moved.Store(true)
	default:
		close(t.stop)
		t.conn.Close()
	}
}

// run sends the first count, and those that differ from the one before.
func (t *tally) run(c counts) {
	defer t.conn.Close()
	for last := (counts{}); ; c = t.count() {
		if c.Moving != last.Moving || !slices.Equal(c.Open, last.Open) {
			if t.send(c) != nil {
				return // the successor has ended, or the handover has failed
			}
			last = c
		}
		if !c.Moving && !slices.ContainsFunc(c.Open, func(n int) bool { return n > 0 }) {
			return
		}
		select {
		case <-t.stop:
			return
		case <-time.After(tallyPause):
		}
	}
}

// count looks at moved first: the copies of all connections that have moved are closed by then.
func (t *tally) count() counts {
	c := counts{Moving: !t.moved.Load()}
	for _, taken := range t.taken {
		c.Open = append(c.Open, taken())
	}
	return c
}

func (t *tally) send(c counts) error {
	p, err := json.Marshal(c)
	if err == nil {
		err = t.conn.SetWriteDeadline(time.Now().Add(stepTimeout()))
	}
	if err == nil {
		_, err = t.conn.Write(p)
	}
	return err
}

// elsewhere is the successor's end of a tally. A nil *elsewhere does nothing.
//
// A connection that has moved is counted twice until the predecessor's next message, which comes after
// tallyPause: thousands of connections could seem to fill the listener, and idle ones would be closed
// to make room. So the successor doesn't wait for it: the predecessor accepts no more, and as long as
// connections move it has, at most, the connections of its first message without those that came.
//
// A connection on its way is not counted too little either: the predecessor closes its copy once it has
// committed it, and may say so before this process has read that. So those that are held count here.
type elsewhere struct {
	conn *net.UnixConn // immutable

	mu        sync.Mutex
	moving    bool         // guarded by mu
	reported  bool         // a message has come; guarded by mu
	listeners []*takenSlot // guarded by mu
}

// takenSlot is what is known about a listener's connections in the predecessor. It is guarded by the mu
// of its elsewhere.
type takenSlot struct {
	limits *accepting.Limits // nil: none, or the listener was dropped
	first  int               // the count of the offer, then of the first message
	last   int               // the count of the last message
	held   int               // connections that are about to move: in last, or not any more
	came   int               // connections that have moved
}

// newElsewhere counts what the offer says, and then what is read from conn, which it owns.
func newElsewhere(conn *net.UnixConn, listeners []*offered) *elsewhere {
	e := &elsewhere{conn: conn, moving: true}
	for _, l := range listeners {
		e.listeners = append(e.listeners, &takenSlot{limits: l.limits, first: l.Taken, last: l.Taken})
	}
	for i := range e.listeners {
		e.updateLocked(i) // without mu: no other goroutine has e yet
	}
	go e.run()
	return e
}

// updateLocked tells the listener with that index how many connections it has elsewhere.
func (e *elsewhere) updateLocked(i int) {
	l := e.listeners[i]
	n := l.last
	if e.moving {
		n = max(min(n+l.held, l.first-l.came), 0)
	}
	l.limits.SetElsewhere(n)
}

// holds counts a connection of the listener with that index that is about to move.
func (e *elsewhere) holds(i int) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listeners[i].held++
	e.updateLocked(i)
}

// came counts a held connection of the listener with that index that has moved.
func (e *elsewhere) came(i int) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listeners[i].held--
	e.listeners[i].came++
	e.updateLocked(i)
}

// run reads counts until the predecessor has no connections, or has ended. If a message makes no sense
// it logs a line, and counts nothing from then on.
func (e *elsewhere) run() {
	defer e.conn.Close()
	for buf := make([]byte, countsBytesMax+1); ; {
		n, err := e.conn.Read(buf)
		if err == nil {
			err = e.report(buf[:n])
		}
		if err == nil {
			continue
		}
		if errors.Is(err, errCounts) {
			slog.Warn("handover: MaxConns no longer counts the connections of the predecessor", "error", err)
		}
		e.forget()
		return
	}
}

// errCounts is wrapped by errors about a message of a tally.
var errCounts = errors.New("bad counts")

// report acts on a message.
func (e *elsewhere) report(p []byte) error {
	var c counts
	if len(p) > countsBytesMax {
		return fmt.Errorf("%w: longer than %d bytes", errCounts, countsBytesMax)
	}
	if err := json.Unmarshal(p, &c); err != nil {
		return fmt.Errorf("%w: %v", errCounts, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := c.check(len(e.listeners)); err != nil {
		return fmt.Errorf("%w: %v", errCounts, err)
	}
	e.moving = c.Moving
	for i, l := range e.listeners {
		if l.last = c.Open[i]; !e.reported {
			l.first = l.last
		}
		e.updateLocked(i)
	}
	e.reported = true
	return nil
}

// forget counts no connections any more.
func (e *elsewhere) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, l := range e.listeners {
		l.first, l.last = 0, 0
		e.updateLocked(i)
	}
}
