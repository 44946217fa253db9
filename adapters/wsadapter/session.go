package wsadapter

import (
	"errors"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/workers"
)

// Session is a program's side of a conversation with messages of type M. Its methods are called one at
// a time, on changing goroutines; each call happens before the next. They may block.
//
// A panic in any of them closes only the connection, as in an http.Handler. Package log logs it with
// its stack, unless its value is [http.ErrAbortHandler], and then End is called, if it wasn't. The
// same goes for runtime.Goexit, which isn't logged.
type Session[M any] interface {
	// Read returns the next message, with the library's call that waits for it. It must let empty
	// messages pass: see the package's comment. No other call may read messages from the connection,
	// except that Handle may read the rest of a message that the library returns as a reader.
	Read() (M, error)

	// Handle handles a message. An error ends the conversation.
	Handle(M) error

	// End is the last call. It gets the first error of Read or Handle, and is called once. The connection
	// is closed afterwards, or before if there was a panic. If the panic's value was an error,
	// [errors.Is] finds it.
	End(error)
}

// Start begins the conversation s on c, and returns at once. From now on c is closed when the
// conversation ends. Messages read with the library before Start don't reach the Session. Start panics
// if it was already called for c, or if c is nil because no library got the [Upgrade].
//
// An http.Handler should return after Start: its goroutine is no longer needed. In a bubble of
// testing/synctest a conversation keeps a goroutine of the bubble.
func Start[M any](c *Conn, s Session[M]) {
	if c == nil {
		panic("wsadapter: Start has no connection: pass the Upgrade to the WebSocket library, in place of its http.ResponseWriter")
	}
	if s == nil {
		panic("wsadapter: Start was called with a nil Session")
	}
	bubble := monotime.InBubble()
	c.mu.Lock()
	if c.phase != unstarted {
		c.mu.Unlock()
		panic("wsadapter: Start was called twice for a connection")
	}
	c.phase = outside
	if bubble {
		c.linger = blocking
	}
	c.mu.Unlock()
	counters.started.Add(1)
	counters.sessions.Add(1)
	v := &conversation[M]{conn: c, user: s}
	if m := c.mover(); m != nil && m.Start(v) {
		return
	}
	if bubble { // the workers are outside, and must not use what the Session has made in it
		go work(v)
		return
	}
	sessionWorkers.Serve(v)
}

// sessionWorkers run conversations while there is something to read.
var sessionWorkers = workers.Pool[runner]{Work: work}

// conversation is a Session with its connection, and the connection's handler while it waits.
type conversation[M any] struct {
	conn  *Conn
	user  Session[M]
	ended bool // End was called, or is about to be
}

// runner is a conversation of any type, or one that is to end.
type runner interface {
	run()
	fail(value any)
}

// work runs a conversation until it waits or is over. onSession looks for this function.
//
//go:noinline
func work(r runner) {
	returned := false
	defer func() {
		if !returned {
			r.fail(recover())
		}
	}()
	r.run()
	returned = true
}

var workEntry = reflect.ValueOf(work).Pointer()

// callersMax is how many calls there may be below work for onSession to find it.
const callersMax = 128

// onSession reports whether the caller runs within work, which is the second function of a worker. json
// says whether it runs within coder's wsjson as well, which closes the connection when a message isn't
// JSON.
func onSession() (yes, json bool) {
	var callers [callersMax]uintptr
	n := runtime.Callers(2, callers[:])
	for i := n - 1; i >= max(0, n-4) && !yes; i-- {
		f := runtime.FuncForPC(callers[i] - 1)
		yes = f != nil && f.Entry() == workEntry
	}
	for i := 0; i < n && yes && !json; i++ {
		f := runtime.FuncForPC(callers[i] - 1)
		json = f != nil && strings.Contains(f.Name(), "/wsjson.")
	}
	return yes, json
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
			v.finish(err)
			return
		}
	}
}

// finish ends the conversation.
func (v *conversation[M]) finish(err error) {
	v.ended = true
	v.user.End(err)
	v.hangUp()
}

// fail ends the conversation after a panic of one of its methods with its value, or after runtime.Goexit
// with nil.
func (v *conversation[M]) fail(value any) {
	err := link.Panicked(v.conn, value)
	v.hangUp() // first: End may wait for a lock that the method has not unlocked
	if v.ended {
		return
	}
	v.ended = true
	defer func() {
		if value := recover(); value != nil {
			_ = link.Panicked(v.conn, value)
		}
	}()
	v.user.End(err)
}

// arm lets the connection wait. If it fails the next Read waits or fails instead.
func (v *conversation[M]) arm() bool {
	counters.waiting.Add(1)
	err := v.conn.socket.NotifyReadable(v)
	if err == nil {
		if m := v.conn.mover(); m != nil {
			m.Armed()
		}
		return true
	}
	counters.waiting.Add(-1)
	if !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		v.conn.mu.Lock()
		v.conn.linger = blocking // another callback is armed on the socket
		v.conn.mu.Unlock()
	}
	return false
}

// OnReadable implements [percore.ReadableHandler].
func (v *conversation[M]) OnReadable(error) {
	counters.waiting.Add(-1)
	counters.woken.Add(1)
	v.conn.woken()
	v.Resume() // Read finds an error, too
}

var (
	_ percore.ReadableHandler = (*conversation[int])(nil)
	_ link.Conversation       = (*conversation[int])(nil)
)

// These are the methods of [link.Conversation].

func (v *conversation[M]) Session() any { return v.user }

func (v *conversation[M]) Keeps() bool {
	v.conn.mu.Lock()
	defer v.conn.mu.Unlock()
	return v.conn.linger >= keeping
}

func (v *conversation[M]) Disarm() bool {
	if !v.conn.socket.CancelOnReadable() {
		v.conn.endLinger()
		return false
	}
	counters.waiting.Add(-1)
	return true
}

func (v *conversation[M]) Resume()       { sessionWorkers.Serve(v) }
func (v *conversation[M]) End(err error) { sessionWorkers.Serve(&ending[M]{v, err}) }

// ending is a conversation that ends without a call of Read or Handle.
type ending[M any] struct {
	*conversation[M]
	err error
}

func (e *ending[M]) run() { e.finish(e.err) }

func (v *conversation[M]) hangUp() {
	_ = v.conn.Close()
	if m := v.conn.mover(); m != nil {
		m.Leave()
	}
	counters.sessions.Add(-1)
}
