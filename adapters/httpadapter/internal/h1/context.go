package h1

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// requestContext is the context of a request whose parent is never cancelled. It
// makes what it needs on demand: a channel, and the local address, which takes a system call. Contexts
// that derive from it need no goroutine, since it has the method AfterFunc (see context.AfterFunc).
// Programs keep contexts for long, so it holds no memory of the request, and none of TLS.
type requestContext struct {
	parent context.Context // immutable
	conn   *percore.Conn   // immutable

	mu    sync.Mutex
	err   error // context.Canceled once it is
	done  chan struct{}
	after map[*func()]struct{} // to be called, each on a goroutine of its own
}

func (c *requestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *requestContext) Value(key any) any {
	if key == semantics.AfterFuncer {
		return c
	}
	if key == http.LocalAddrContextKey {
		return c.conn.LocalAddr()
	}
	return c.parent.Value(key)
}

func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc is for package context. It calls f, on a goroutine of its own, when c is cancelled; stop
// keeps it from that, and reports whether it did.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = make(map[*func()]struct{})
	}
	c.after[&f] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, stopped := c.after[&f]
		delete(c.after, &f)
		return stopped
	}
}

// cancel cancels the context. It may be called more than once, and by several goroutines.
func (c *requestContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = context.Canceled
	if c.done != nil {
		close(c.done)
	}
	for f := range c.after {
		go (*f)()
	}
	c.after = nil
}

// localAddrContext is a parent that can be cancelled, with the local address.
type localAddrContext struct {
	context.Context
	conn *percore.Conn
}

func (c localAddrContext) Value(key any) any {
	if key == http.LocalAddrContextKey {
		return c.conn.LocalAddr()
	}
	return c.Context.Value(key)
}

func newRequestContext(parent context.Context, c *percore.Conn) (context.Context, semantics.Canceler) {
	if parent.Done() != nil {
		ctx, cancel := context.WithCancel(localAddrContext{parent, c})
		return ctx, derivedCanceler(cancel)
	}
	ctx := &requestContext{parent: parent, conn: c}
	return ctx, (*ownCanceler)(ctx)
}

// ownCanceler and derivedCanceler are one word, which needs no memory in an interface. The contexts that
// handlers get have no method Cancel.
type (
	ownCanceler     requestContext     // whose parent can't be cancelled
	derivedCanceler context.CancelFunc // whose parent can be
)

func (c *ownCanceler) Cancel() { (*requestContext)(c).cancel() }

func (c derivedCanceler) Cancel() { c() }
