package wsadapter

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/percore/percore"
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
	started := c.phase != unstarted
	if !started {
		c.phase = outside
		if bubble {
			c.linger = blocking
		}
	}
	c.mu.Unlock()
	if started {
		panic("wsadapter: Start was called twice for a connection")
	}
	counters.started.Add(1)
	counters.sessions.Add(1)
	v := &conversation[M]{conn: c, user: s}
	if m := c.move(); m != nil && m.group.add(m, v) {
		return // it begins when the others of its Group have arrived
	}
	if bubble { // the loops and the workers are outside, and must not use what the Session has made in it
		go work(v)
		return
	}
	sessionWorkers.Serve(v)
}

// isStarted reports whether Start was called.
func (c *Conn) isStarted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase != unstarted
}

// sessionWorkers run conversations while there is something to read.
var sessionWorkers = workers.Pool[runner]{Work: work}

// conversation is a Session with its connection, and the connection's handler while it waits.
type conversation[M any] struct {
	conn  *Conn
	user  Session[M]
	ended bool // End was called, or is about to be
}

// runner is what work runs: a conversation of any type, or a part of its move.
type runner interface {
	run()
	fail(value any)
}

// member is a conversation of any type.
type member interface {
	runner
	saver() Saver
	finish(err error)
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

// callersMax bounds how deep in calls a Session's Read can be recognised.
const callersMax = 128

// onSession reports whether the caller runs within work, which is a goroutine's second function, and
// whether a decoder that closes the connection when a message isn't JSON, coder's wsjson, is in between.
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
			if v.rest() || v.arm() {
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

// saver returns the Session if it can move, or nil.
func (v *conversation[M]) saver() Saver {
	s, _ := any(v.user).(Saver)
	return s
}

// rest makes the conversation wait for its turn to move, if its Group does.
func (v *conversation[M]) rest() bool {
	m := v.conn.move()
	return m != nil && m.rest()
}

// fail ends the conversation after a panic of one of its methods, with its value, or after
// runtime.Goexit, with nil.
func (v *conversation[M]) fail(value any) {
	logPanic(v.conn, value)
	v.hangUp() // first: End may wait for a lock that the method has not unlocked
	if v.ended {
		return
	}
	v.ended = true
	defer func() { logPanic(v.conn, recover()) }()
	v.user.End(panicError(value))
}

// logPanic logs a panic as net/http does. A deferred function calls it, while the stack is there.
func logPanic(c *Conn, value any) {
	if value != nil && value != http.ErrAbortHandler {
		log.Printf("wsadapter: panic serving %v: %v\n%s", c.RemoteAddr(), value, debug.Stack())
	}
}

// panicError returns the reason for the end of a conversation: see fail.
func panicError(value any) error {
	switch value := value.(type) {
	case nil:
		return errors.New("wsadapter: a method of the Session ended its goroutine (runtime.Goexit)")
	case error:
		return fmt.Errorf("wsadapter: a method of the Session panicked: %w", value)
	}
	return fmt.Errorf("wsadapter: a method of the Session panicked: %v", value)
}

// arm lets the connection wait. If it fails the next Read waits or fails instead.
func (v *conversation[M]) arm() bool {
	counters.waiting.Add(1)
	err := v.conn.socket.NotifyReadable(v)
	if err == nil {
		return !v.armedTooLate()
	}
	counters.waiting.Add(-1)
	if !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		v.conn.mu.Lock()
		v.conn.linger = blocking // another callback is armed on the socket
		v.conn.mu.Unlock()
	}
	return false
}

// armedTooLate reports whether the conversation was armed although its Group is about to move, and
// could be disarmed again. A departure publishes itself and then looks for armed conversations, so one
// of the two sees the other.
func (v *conversation[M]) armedTooLate() bool {
	m := v.conn.move()
	if m == nil || !m.mayRest(m.group.leaving.Load()) || !v.conn.socket.CancelOnReadable() {
		return false
	}
	counters.waiting.Add(-1)
	return true
}

// OnReadable implements [percore.ReadableHandler].
func (v *conversation[M]) OnReadable(error) {
	counters.waiting.Add(-1)
	counters.woken.Add(1)
	v.conn.woken()
	sessionWorkers.Serve(v) // Read finds an error, too
}

var _ percore.ReadableHandler = (*conversation[int])(nil)

func (v *conversation[M]) hangUp() {
	_ = v.conn.Close()
	if m := v.conn.move(); m != nil {
		m.leave()
	}
	counters.sessions.Add(-1)
}
