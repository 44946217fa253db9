package httpadapter

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/monotime"
)

// service is one call of Serve: a listener, its connections, and the feeds by
// which net/http gets them.
//
// It may outlive the call: connections go on after their listener was closed, and
// to serve one that wakes up net/http needs a feed. So the feeds end with the last
// of the accept loops and connections, or when net/http closes them, which is how
// it shuts down.
type service struct {
	// immutable
	server   *Server
	listener net.Listener
	tls      *tls.Config // nil: plain HTTP
	base     context.Context
	ctx      context.Context // of connections, before the user's ConnContext
	feeds    []*feed
	parks    bool          // not in a bubble of testing/synctest, since loops, which are outside, can't reach a feed there
	served   chan error    // the results of net/http's Serve, for each feed
	done     chan struct{} // closed with the last reference

	// atomic
	refs    atomic.Int64 // accept loops and connections
	ended   atomic.Bool  // net/http has closed a feed: it shuts down, or could not start
	foreign atomic.Bool  // connections of other types were met, and the log was told

	// introducing is held while the user is told of a new connection: net/http calls
	// ConnContext, and ConnState with StateNew, on one goroutine. The hooks may block, and
	// may call the Server's methods, none of which needs it.
	introducing sync.Mutex

	closeOnce sync.Once
	closeErr  error // guarded by closeOnce
}

func (s *Server) newService(l net.Listener, config *tls.Config) *service {
	sv := &service{server: s, listener: l, tls: config, base: context.Background(), done: make(chan struct{})}
	sv.parks = s.parks && !monotime.InBubble()
	if s.user.baseContext != nil {
		sv.base = s.user.baseContext(l)
		if sv.base == nil {
			panic("BaseContext returned a nil context")
		}
	}
	sv.ctx = context.WithValue(sv.base, http.ServerContextKey, s.srv)
	for _, from := range perLoop(l) {
		f := &feed{service: sv, server: s, from: from, wake: make(chan struct{}, 1), told: make(chan struct{}, 1), parksAtOnce: s.parkAfter == 0}
		f.sweeper = newSweeper(s.parkAfter, f.sweep)
		sv.feeds = append(sv.feeds, f)
	}
	sv.served = make(chan error, len(sv.feeds))
	sv.refs.Store(int64(len(sv.feeds)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.services[sv] = struct{}{}
	return sv
}

// perLoop returns the listeners to accept from: one per socket if there are several,
// and descriptors for them.
func perLoop(l net.Listener) []net.Listener {
	if pl, ok := l.(*percore.Listener); ok {
		if split, err := pl.PerLoop(); err == nil {
			all := make([]net.Listener, len(split))
			for i := range split {
				all[i] = split[i]
			}
			return all
		}
	}
	return []net.Listener{l}
}

// run serves until the listener fails.
func (sv *service) run() error {
	failed := make(chan error, len(sv.feeds))
	for _, f := range sv.feeds {
		go func() {
			sv.served <- sv.server.srv.Serve(f)
			f.introduced()
			f.closeKept()
		}()
		go func() {
			failed <- f.acceptLoop()
			sv.release()
		}()
	}
	err := <-failed
	// End the other loops. Its error is of no interest, now or to a Close later.
	sv.closeOnce.Do(func() { sv.listener.Close() })
	for range sv.feeds[1:] {
		<-failed
	}
	if sv.ended.Load() {
		return <-sv.served // it knows why
	}
	return err
}

// release drops a reference. With the last one net/http has nothing to wait for
// any more.
func (sv *service) release() {
	if sv.refs.Add(-1) > 0 {
		return
	}
	for _, f := range sv.feeds {
		f.close()
	}
	s := sv.server
	s.mu.Lock()
	delete(s.mu.services, sv)
	s.mu.Unlock()
	close(sv.done)
}

// close ends the service: the listener, all connections that net/http does not have at
// the moment, and from now on those that it gives back. net/http itself closes only the
// feeds that it has begun to accept from.
func (sv *service) close() {
	for _, f := range sv.feeds {
		_ = f.Close()
		f.closeKept()
	}
}

// closeIdle closes the connections that are parked, or have been until just now.
func (sv *service) closeIdle() {
	for _, f := range sv.feeds {
		f.closeConns((*conn).hangUpIdle)
	}
}

// feed is the listener that net/http accepts from. There is one per listener of
// the service, so that connections that the kernel gave to different sockets are
// accepted, woken and handed to net/http without getting in each other's way.
//
// It also keeps the connections that net/http does not have at the moment, and sees
// to it that it gets them back of those that wait for a request.
type feed struct {
	// immutable
	service     *service
	server      *Server // the service's, which each request needs
	from        net.Listener
	wake        chan struct{} // has a token if ready or closed may have changed
	parksAtOnce bool
	told        chan struct{} // has a token when a connection that isn't ours was introduced, or never will be

	// owned by the goroutine that net/http accepts on
	introduces bool // net/http is telling the user of a connection that isn't ours

	sweeper sweeper

	mu struct {
		sync.Mutex
		kept   connSet    // that net/http does not have
		lent   connSet    // that it has, except those that it never gives back
		ready  []net.Conn // for Accept, oldest first: *conn that are queued, and foreign ones
		closed bool
	}
}

// Accept returns the next connection that has something to read, or isn't ours.
func (f *feed) Accept() (net.Conn, error) {
	f.introduced()
	for {
		nc, closed := f.next()
		switch {
		case closed:
			return nil, net.ErrClosed
		case nc == nil:
			<-f.wake
			continue
		}
		c, ok := nc.(*conn)
		if !ok {
			f.introduces = true
			return nc, nil
		}
		if lease := c.lend(); lease != nil {
			return lease, nil
		}
	}
}

// next takes a connection out of the queue. It is called by one goroutine.
func (f *feed) next() (nc net.Conn, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.ready) == 0 || f.service.ended.Load() {
		return nil, f.mu.closed // connections accepted before the last release are still served
	}
	nc = f.mu.ready[0]
	f.mu.ready[0] = nil
	f.mu.ready = f.mu.ready[1:]
	if len(f.mu.ready) == 0 {
		f.mu.ready = nil // a burst's array is not kept
	}
	return nc, false
}

// Close is called by net/http when it shuts down, with the server's lock held, and when
// it could not start; and when the Server is closed.
func (f *feed) Close() error {
	if !f.close() {
		return nil // it was not needed any more
	}
	sv := f.service
	sv.ended.Store(true)
	sv.closeOnce.Do(func() { sv.closeErr = sv.listener.Close() })
	return sv.closeErr
}

// Addr returns the address of the listener.
func (f *feed) Addr() net.Addr { return f.service.listener.Addr() }

// close ends Accept, and reports whether it hadn't been ended already.
func (f *feed) close() bool {
	f.mu.Lock()
	first := !f.mu.closed
	f.mu.closed = true
	f.mu.Unlock()
	f.signal()
	return first
}

func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// push queues a connection for Accept. It reports false if net/http accepts no
// more.
func (f *feed) push(nc net.Conn) bool {
	f.mu.Lock()
	if f.mu.closed {
		f.mu.Unlock()
		return false
	}
	f.mu.ready = append(f.mu.ready, nc)
	f.mu.Unlock()
	f.signal()
	return true
}

// keep takes a new connection in. It reports false if net/http would never take it.
// The caller holds c.mu.
func (f *feed) keep(c *conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return false
	}
	f.mu.kept.add(c)
	return true
}

// lend notes that net/http gets c, which was kept, and returns the time in the
// sweeper's ticks. The caller holds c.mu.
func (f *feed) lend(c *conn) (tick uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.kept.remove(c)
	f.mu.lent.add(c)
	f.sweeper.joinedLocked(f.mu.lent.len)
	return f.sweeper.ticks.Load()
}

// takeBack keeps c again, which was lent. It reports false if net/http would never
// take it another time. The caller holds c.mu.
func (f *feed) takeBack(c *conn) bool {
	f.forget(c)
	return f.keep(c)
}

// forget gives up c, which was kept or lent or neither. The caller holds c.mu.
func (f *feed) forget(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.mu.kept.remove(c):
	case f.mu.lent.remove(c):
		f.sweeper.leftLocked(f.mu.lent.len)
	}
}

// each calls do for the connections that are in set, one of the feed's, from the
// beginning of the call to its end. It may call it for others, and twice for one. The
// caller does not hold mu, nor does do run with it: no matter how many connections there
// are, others don't wait for it.
func (f *feed) each(set *connSet, do func(c *conn)) {
	var part [connsPerChunk]*conn
	for n, end := 0, math.MaxInt; ; {
		f.mu.Lock()
		n, end = set.slice(&part, end)
		f.mu.Unlock()
		for _, c := range part[:n] {
			do(c)
		}
		if end == 0 {
			return
		}
	}
}

// closeConns closes those of the kept connections that hangUp is for, and those that
// net/http has and would close if it knew of their past.
func (f *feed) closeConns(hangUp func(c *conn)) {
	f.each(&f.mu.kept, hangUp)
	f.each(&f.mu.lent, (*conn).hangUpResuming)
}

// closeKept closes the connections that net/http would close if it knew of them, now that it takes
// no more, because f is closed: those that are kept, queued, or were parked until just now.
func (f *feed) closeKept() {
	f.closeConns((*conn).hangUp)
	f.mu.Lock()
	ready := f.mu.ready
	f.mu.ready = nil
	f.mu.Unlock()
	for _, nc := range ready {
		if _, ok := nc.(*conn); !ok {
			nc.Close()
			f.told <- struct{}{}
		}
	}
}

// acceptLoop accepts connections until the listener fails for good. Failures that
// pass are logged and waited out as net/http does.
func (f *feed) acceptLoop() error {
	var delay time.Duration
	for {
		nc, err := f.from.Accept()
		if err != nil {
			//lint:ignore SA1019 it is what net/http asks for
			if ne, ok := err.(net.Error); !ok || !ne.Temporary() || f.service.ended.Load() {
				return err
			}
			delay = min(max(2*delay, acceptDelayMin), acceptDelayMax)
			f.server.logf("http: Accept error: %v; retrying in %v", err, delay)
			time.Sleep(delay)
			continue
		}
		delay = 0
		f.accepted(nc)
	}
}

// net/http's pauses after an Accept that failed.
const (
	acceptDelayMin = 5 * time.Millisecond
	acceptDelayMax = time.Second
)

// accepted takes a new connection in.
func (f *feed) accepted(nc net.Conn) {
	pc, ok := nc.(*percore.Conn)
	if ok && f.service.parks {
		f.newConn(pc).start()
		return
	}
	if !ok {
		f.server.stats.foreign.Add(1)
		f.service.warnForeign(nc)
	}
	if f.service.tls != nil {
		nc = tls.Server(nc, f.service.tls)
	}
	f.introduce(nc)
}

// warnForeign tells the log, once, that connections could be parked if not for their type.
func (sv *service) warnForeign(nc net.Conn) {
	if !sv.parks || !sv.foreign.CompareAndSwap(false, true) {
		return
	}
	sv.server.logf("httpadapter: connections of type %T are served but not parked: "+
		"while idle they keep a goroutine and buffers, as with net/http. Only a *percore.Conn is parked: "+
		"give Serve the listener that percore.Listen returns, without a wrapper", nc)
}

// introduce has net/http take a connection that isn't ours, and returns when the user
// has been told of it: of one of the service's at a time, and before Serve returns.
func (f *feed) introduce(nc net.Conn) {
	f.service.introducing.Lock()
	defer f.service.introducing.Unlock()
	if !f.push(nc) {
		nc.Close()
		return
	}
	<-f.told
}

// introduced lets introduce go on when net/http has told the user of the connection,
// which it does before it accepts the next, or returns.
func (f *feed) introduced() {
	if f.introduces {
		f.introduces = false
		f.told <- struct{}{}
	}
}
