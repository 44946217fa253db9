// Package link is what package wsadapter and its package moving know of each other, and the frames that
// both follow.
package link

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime/debug"

	"github.com/percore/percore"
)

// Mover is the part of a conversation that moves it to another process: the net.Conn below the
// wsadapter.Conn.
type Mover interface {
	net.Conn

	// NetConn returns the connection below.
	NetConn() net.Conn

	// Start gets the conversation before a method of its Session is called. If it returns true, the
	// conversation doesn't begin until the Mover calls Resume.
	Start(c Conversation) (later bool)

	// Armed is called after the conversation was armed. Perhaps it waits for the peer no more.
	Armed()

	// Leave is called when the conversation has ended.
	Leave()
}

// Conversation is the part that waits for the peer and calls the methods of the Session.
type Conversation interface {
	// Session returns the user's wsadapter.Session.
	Session() any

	// Keeps reports whether the conversation keeps its goroutine while it waits for the peer.
	Keeps() bool

	// Disarm ends the wait for the peer without a goroutine. If it returns true, the conversation rests
	// until Resume or End is called. Otherwise the conversation has a goroutine, which lingers no more.
	Disarm() bool

	// Resume makes a conversation that rests go on.
	Resume()

	// End ends a conversation that rests.
	End(err error)
}

// MovingMetrics returns the metrics of package moving, if the program has it.
var MovingMetrics = func() []percore.Metric { return nil }

// Panicked logs a panic as net/http does, and returns it as an error. The value is nil after
// runtime.Goexit. A deferred function calls it, while the stack is there.
func Panicked(c net.Conn, value any) error {
	if value == nil {
		return errors.New("wsadapter: a method of the Session ended its goroutine (runtime.Goexit)")
	}
	if value != http.ErrAbortHandler {
		log.Printf("wsadapter: panic serving %v: %v\n%s", c.RemoteAddr(), value, debug.Stack())
	}
	if err, ok := value.(error); ok {
		return fmt.Errorf("wsadapter: a method of the Session panicked: %w", err)
	}
	return fmt.Errorf("wsadapter: a method of the Session panicked: %v", value)
}
