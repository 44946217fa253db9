package wsadapter

import (
	"errors"
	"net"
	"os"
	"reflect"
	"runtime"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/workers"
)

// Session is a program's side of a conversation with messages of type M. Its methods are called one at
// a time, on goroutines that change, each call happening before the next. They may block.
//
// A panic ends the program, as in any goroutine of its own, after the connection was closed.
type Session[M any] interface {
	// Read returns the next message, by the library's call that waits for it. See the package's comment
	// for the empty messages that it must let pass. No other call may read messages of the
	// connection, except in Handle the rest of a message that the library hands out as a reader.
	Read() (M, error)

	// Handle handles a message. An error ends the conversation.
	Handle(M) error

	// End is called once, with the first error of Read or Handle, and is the last call. Afterwards the
	// connection is closed.
	End(error)
}

// Start begins the conversation s on c, and returns at once. From now on c is closed when the
// conversation ends. Messages that a library was asked for before Start are none of the Session's. It
// panics if it was called for c before.
//
// An http.Handler should return after Start: its goroutine is not needed any more. In a bubble of
// testing/synctest a conversation keeps a goroutine, which is in the bubble.
func Start[M any](c *Conn, s Session[M]) {
	bubble := monotime.InBubble()
	c.mu.Lock()
	started := c.phase != unstarted
	if !started {
		c.phase = outside
		if bubble {
			c.patience = endless
		}
	}
	c.mu.Unlock()
	if started {
		panic("wsadapter: Start was called twice for a connection")
	}
	counters.started.Add(1)
	counters.sessions.Add(1)
	v := &conversation[M]{conn: c, user: s}
	if bubble { // the loops and the crew are outside, and must not use what the Session has made in it
		go work(v)
		return
	}
	crew.Serve(v)
}

// crew are the goroutines that conversations run on while there is something to read.
var crew = workers.Pool[runner]{Work: work}

// conversation is a Session with its connection, and the connection's handler while it waits.
type conversation[M any] struct {
	conn *Conn
	user Session[M]
}

// runner is a conversation of any type.
type runner interface {
	run()
	hangUp()
}

// work runs a conversation until it waits or is over. onSession looks for this function.
//
//go:noinline
func work(r runner) {
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			r.hangUp()
		}
	}()
	r.run()
	returned = true
}

var workEntry = reflect.ValueOf(work).Pointer()

// callersMax bounds how deep in calls a Session's Read can be recognised.
const callersMax = 128

// onSession reports whether the caller runs within work, which is a goroutine's second function.
func onSession() bool {
	var callers [callersMax]uintptr
	n := runtime.Callers(2, callers[:])
	for i := n - 1; i >= max(0, n-4); i-- {
		if f := runtime.FuncForPC(callers[i] - 1); f != nil && f.Entry() == workEntry {
			return true
		}
	}
	return false
}

func (v *conversation[M]) run() {
	for {
		v.conn.begin()
		m, err := v.user.Read()
		switch {
		case v.conn.end():
			if v.arm() {
				return
			}
			continue
		case err == nil:
			err = v.user.Handle(m)
		}
		if err != nil {
			v.user.End(err)
			v.hangUp()
			return
		}
	}
}

// arm lets the connection wait. If it fails the next Read waits or fails instead.
func (v *conversation[M]) arm() bool {
	counters.waiting.Add(1)
	err := v.conn.socket.NotifyReadable(v)
	if err == nil {
		return true
	}
	counters.waiting.Add(-1)
	if !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		v.conn.mu.Lock()
		v.conn.patience = endless // another callback is armed on the socket
		v.conn.mu.Unlock()
	}
	return false
}

// OnReadable implements [percore.ReadableHandler].
func (v *conversation[M]) OnReadable(error) {
	counters.waiting.Add(-1)
	counters.woken.Add(1)
	v.conn.woken()
	crew.Serve(v) // an error is Read's, too
}

var _ percore.ReadableHandler = (*conversation[int])(nil)

func (v *conversation[M]) hangUp() {
	_ = v.conn.Close()
	counters.sessions.Add(-1)
}
