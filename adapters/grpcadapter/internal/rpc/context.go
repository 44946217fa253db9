package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// callKey is the key of the call itself in the context of a call.
var callKey any = new(struct{ _ byte })

// callContext is a call as the context of its handler. It makes what it needs on demand. Contexts
// that derive from it need no goroutine, since it has the method AfterFunc (see context.AfterFunc).
type callContext call

// String says what is printed: grpc-go puts contexts into errors, and without it package fmt would read
// all fields while others write them.
func (x *callContext) String() string { return "grpcadapter.call(" + x.method + ")" }

// Deadline implements context.Context.
func (x *callContext) Deadline() (time.Time, bool) { return x.deadline, !x.deadline.IsZero() }

// Value implements context.Context.
func (x *callContext) Value(key any) any {
	switch {
	case key == keys.metadata && key != nil:
		return (*call)(x).incoming()
	case key == keys.stream && key != nil:
		t := (*TransportStream)(x)
		if other := x.conn.server.config.StreamValue; other != nil {
			return other(t)
		}
		return grpc.ServerTransportStream(t)
	case key == callKey:
		return (*call)(x)
	}
	if find := (*call)(x).config().CallValue; find != nil {
		if v, ok := find((*TransportStream)(x), key); ok {
			return v
		}
	}
	return (*call)(x).parent().Value(key)
}

// Done implements context.Context.
func (x *callContext) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.doneChan == nil {
		x.doneChan = make(chan struct{})
		if x.err != nil {
			close(x.doneChan)
		}
	}
	return x.doneChan
}

// Err implements context.Context.
func (x *callContext) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// AfterFunc is for package context. It calls f on its own goroutine when the call ends; stop prevents
// that, and reports whether it did.
func (x *callContext) AfterFunc(f func()) (stop func() bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		go f()
		return func() bool { return false }
	}
	if x.after == nil {
		x.after = make(map[*func()]struct{})
	}
	x.after[&f] = struct{}{}
	return func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		_, stopped := x.after[&f]
		delete(x.after, &f)
		return stopped
	}
}

// endLocked ends the context.
func (c *call) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.doneChan != nil {
		close(c.doneChan)
	}
	for f := range c.after {
		go (*f)()
	}
	c.after = nil
}

// context returns the context of the call. tag, if it is not nil, may derive another from the one that
// has the metadata, before the stream is added.
func (c *call) context(tag func(context.Context) context.Context) context.Context {
	var ctx context.Context = (*callContext)(c)
	if keys.metadata == nil {
		ctx = metadata.NewIncomingContext(ctx, c.incoming())
	}
	if tag != nil {
		ctx = tag(ctx)
	}
	if keys.stream == nil {
		ctx = grpc.NewContextWithServerTransportStream(ctx, (*TransportStream)(c))
	}
	return ctx
}
