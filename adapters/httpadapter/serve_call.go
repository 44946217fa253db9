package httpadapter

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/workers"
)

// serveCall is one call of Serve: a listener, its connections, and the queues by
// which net/http gets them.
//
// It may outlive the call: connections go on after their listener was closed, and
// to serve one that wakes up net/http needs a queue. So the queues end with the last
// of the accept loops and connections, or when net/http closes them, which is how
// it shuts down.
type serveCall struct {
	// immutable
	server    *Server
	listener  net.Listener
	tls       *tls.Config // nil: plain HTTP
	base      context.Context
	ctx       context.Context // of connections, before the user's ConnContext
	queues    []*connQueue
	keeps     bool      // connections wait here, without net/http, for their first byte and whenever net/http gives them back
	way       probe.Way // in which net/http waits: it gives connections back if that is known
	fast      bool      // plain requests are served without net/http
	fieldsMax int       // how many fields net/http takes in the header of a request
	workers   []workers.Pool[*conn]
	addrTexts *addrTexts    // nil without the fast path
	guards    []*guard      // that must be in their place before a connection is accepted
	served    chan error    // the results of net/http's Serve, for each queue
	done      chan struct{} // closed with the last reference

	// atomic
	refs    atomic.Int64 // accept loops and connections
	ended   atomic.Bool  // net/http has closed a queue: it shuts down, or could not start
	foreign atomic.Bool  // connections of other types were met, and the log was told

	keepAlivesOff atomic.Bool               // no connection is to wait for another request
	idleGuard     atomic.Pointer[idleGuard] // that net/http has, or is about to get; nil: none

	// introducing is held while the user is told of a new connection: net/http calls
	// ConnContext, and ConnState with StateNew, on one goroutine. The hooks may block, and
	// may call the Server's methods, none of which needs it.
	introducing sync.Mutex

	closeOnce sync.Once
	closeErr  error // guarded by closeOnce
}

func (s *Server) newServeCall(l net.Listener, config *tls.Config) *serveCall {
	call := &serveCall{server: s, listener: l, tls: config, base: context.Background(), done: make(chan struct{})}
	call.keeps = s.keeps && !monotime.InBubble() // in a bubble of testing/synctest the loops, which are outside, can't reach a queue
	if call.keeps && s.canReadTLS(config) {
		call.way = s.way
		call.fast = s.fastPath && protocols(s.srv).HTTP1()
	}
	call.fieldsMax = fieldsMax(s.srv)
	if s.user.baseContext != nil {
		call.base = s.callBaseContext(l)
		if call.base == nil {
			panic("BaseContext returned a nil context")
		}
	}
	call.ctx = context.WithValue(call.base, http.ServerContextKey, s.srv)
	listeners := perLoop(l)
	call.workers = make([]workers.Pool[*conn], workerSets(len(listeners)))
	for i := range call.workers {
		call.workers[i].Work = (*conn).serve
		call.workers[i].Look = (*conn).visitLoop
	}
	for i, from := range listeners {
		q := &connQueue{call: call, server: s, from: from, wake: make(chan struct{}, 1), told: make(chan struct{}, 1), parksAtOnce: s.parkAfter == 0}
		q.workers = &call.workers[i%len(call.workers)]
		q.sweeper = newSweeper(s.parkAfter, q.sweep)
		call.queues = append(call.queues, q)
	}
	if call.fast {
		call.addrTexts = new(addrTexts)
	}
	call.keepAlivesOff.Store(s.keepAlivesOff.Load())
	call.addGuards()
	call.served = make(chan error, len(call.queues))
	call.refs.Store(int64(len(call.queues)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.calls[call] = struct{}{}
	call.setHandover(s.handoverLocked(l))
	return call
}

// addGuards gives net/http the guards that the call needs, as its first connections.
func (call *serveCall) addGuards() {
	first := &call.queues[0].mu.ready
	if call.fast {
		g := newShutdownGuard(call)
		call.guards, *first = append(call.guards, &g.guard), append(*first, g)
	}
	if call.keeps {
		g := newIdleGuard(call)
		call.idleGuard.Store(g)
		call.guards, *first = append(call.guards, &g.guard), append(*first, g)
	}
}

// callBaseContext calls the user's BaseContext.
func (s *Server) callBaseContext(l net.Listener) context.Context {
	serving.Add(1)
	defer serving.Add(-1) // it may panic
	return s.user.baseContext(l)
}

// procsPerWorkers is how many processors one set of workers keeps busy. Each request takes its lock
// twice, for some tens of nanoseconds. The more sets there are, the fewer connections each
// finds queued at once.
const procsPerWorkers = 4

// workerSets returns how many sets of workers a call has whose connections come from that many
// queues.
func workerSets(queues int) int {
	return min(queues, (runtime.GOMAXPROCS(0)+procsPerWorkers-1)/procsPerWorkers)
}

// fieldsMax returns how many fields of a header srv takes. Its field for that is there since Go 1.27,
// and what net/http takes by default is more than the fast path takes.
func fieldsMax(srv *http.Server) int {
	if f := reflect.ValueOf(srv).Elem().FieldByName("MaxHeaderValueCount"); f.IsValid() && f.CanInt() && f.Int() > 0 {
		return int(f.Int())
	}
	return math.MaxInt
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
func (call *serveCall) run() error {
	failed := make(chan error, len(call.queues))
	for _, q := range call.queues {
		go func() {
			err := call.server.srv.Serve(q)
			for _, g := range call.guards {
				g.settle() // if it was not accepted
			}
			call.served <- err
			q.introduced()
			q.closeKept()
		}()
		go func() {
			for _, g := range call.guards {
				<-g.settled
			}
			failed <- q.acceptLoop()
			call.release()
		}()
	}
	err := <-failed
	// End the other loops. Its error is of no interest, now or to a Close later.
	call.closeOnce.Do(func() { call.listener.Close() })
	for range call.queues[1:] {
		<-failed
	}
	if call.ended.Load() {
		return <-call.served // it knows why
	}
	return err
}

// release drops a reference. With the last one net/http has nothing to wait for
// any more.
func (call *serveCall) release() {
	if call.refs.Add(-1) > 0 {
		return
	}
	for _, q := range call.queues {
		q.close()
	}
	for i := range call.workers {
		call.workers[i].Close()
	}
	s := call.server
	s.mu.Lock()
	delete(s.mu.calls, call)
	s.mu.Unlock()
	close(call.done)
}

// close ends the call: the listener, all connections that net/http does not have at
// the moment, and from now on those that it gives back. net/http itself closes only the
// queues that it has begun to accept from.
func (call *serveCall) close() {
	for _, q := range call.queues {
		_ = q.Close()
		q.closeKept()
	}
	call.closeServed()
}

// closeServed closes the connections that workers have.
func (call *serveCall) closeServed() {
	for _, q := range call.queues {
		q.each(&q.mu.kept, (*conn).closeServed)
	}
}

// closeIdle closes the connections that are parked, or have been until just now.
func (call *serveCall) closeIdle() {
	for _, q := range call.queues {
		q.closeConns((*conn).hangUpIdle)
	}
}

// parks reports whether net/http gives connections back that wait for a request.
func (call *serveCall) parks() bool { return call.way != probe.Unknown }

// keepsAlive reports whether a connection may wait for another request.
func (call *serveCall) keepsAlive() bool {
	return !call.ended.Load() && !call.keepAlivesOff.Load()
}

// connQueue is the listener that net/http accepts from. There is one per listener of
// the call, so that connections that the kernel gave to different sockets are
// accepted, woken and handed to net/http without getting in each other's way.
//
// It also keeps the connections that net/http does not have at the moment, and sees
// to it that it gets them back of those that wait for a request.
type connQueue struct {
	// immutable
	call        *serveCall
	server      *Server // the call's, which each request needs
	from        net.Listener
	wake        chan struct{}        // has a token if ready or closed may have changed
	workers     *workers.Pool[*conn] // one of the call's, shared by several queues
	parksAtOnce bool
	told        chan struct{} // has a token when a connection that isn't ours was introduced, or never will be

	// atomic
	handover  atomic.Pointer[handoverOut] // the HandOver that is under way; nil: none, or nothing of this queue can move
	admitting atomic.Bool                 // a connection is new: it is in neither set

	// owned by the goroutine that net/http accepts on
	introduces bool // net/http is telling the user of a connection that isn't ours

	sweeper sweeper

	mu struct {
		sync.Mutex
		kept   connSet    // that net/http does not have
		leased connSet    // that it has, except those that it never gives back
		ready  []net.Conn // for Accept, oldest first: *conn that are queued, guards, and foreign ones
		closed bool
	}
}

// Accept returns the next connection that has something to read, or isn't ours.
func (q *connQueue) Accept() (net.Conn, error) {
	q.introduced()
	for {
		nc, closed := q.next()
		switch {
		case closed:
			return nil, net.ErrClosed
		case nc == nil:
			<-q.wake
			continue
		}
		switch nc := nc.(type) {
		case *conn:
			if lease := nc.lease(); lease != nil {
				return lease, nil
			}
		case guardConn:
			return nc, nil
		default:
			q.introduces = true
			return nc, nil
		}
	}
}

// next takes a connection out of the queue. It is called by one goroutine.
func (q *connQueue) next() (nc net.Conn, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.ready) == 0 || q.call.ended.Load() {
		return nil, q.mu.closed // connections accepted before the last release are still served
	}
	nc = q.mu.ready[0]
	q.mu.ready[0] = nil
	q.mu.ready = q.mu.ready[1:]
	if len(q.mu.ready) == 0 {
		q.mu.ready = nil // a burst's array is not kept
	}
	return nc, false
}

// Close is called by net/http when it shuts down, with the server's lock held, and when
// it could not start; and when the Server is closed.
func (q *connQueue) Close() error {
	if !q.close() {
		return nil // it was not needed any more
	}
	call := q.call
	call.ended.Store(true)
	if g := call.idleGuard.Load(); g != nil {
		g.change(func() {}) // it may be silent
	}
	call.closeOnce.Do(func() { call.closeErr = call.listener.Close() })
	return call.closeErr
}

// Addr returns the address of the listener.
func (q *connQueue) Addr() net.Addr { return q.call.listener.Addr() }

// close ends Accept, and reports whether it hadn't been ended already.
func (q *connQueue) close() bool {
	q.mu.Lock()
	first := !q.mu.closed
	q.mu.closed = true
	q.mu.Unlock()
	q.signal()
	return first
}

func (q *connQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// push queues a connection for Accept. It reports false if net/http accepts no
// more.
func (q *connQueue) push(nc net.Conn) bool {
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		return false
	}
	q.mu.ready = append(q.mu.ready, nc)
	q.mu.Unlock()
	q.signal()
	return true
}

// keep takes a new connection in. It reports false if net/http would never take it.
// The caller holds c.mu.
func (q *connQueue) keep(c *conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed {
		return false
	}
	q.mu.kept.add(c)
	return true
}

// lend notes that net/http gets c, which was kept, and returns the time in the
// sweeper's ticks. The caller holds c.mu.
func (q *connQueue) leaseOut(c *conn) (tick uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.kept.remove(c)
	q.mu.leased.add(c)
	if q.call.parks() {
		q.sweeper.joinedLocked(q.mu.leased.len)
	}
	return q.sweeper.ticks.Load()
}

// takeBack keeps c again, which was lent. It reports false if net/http would never
// take it another time. The caller holds c.mu.
func (q *connQueue) takeBack(c *conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.leased.remove(c) {
		q.sweeper.leftLocked(q.mu.leased.len)
	}
	if q.mu.closed {
		return false
	}
	q.mu.kept.add(c) // with mu held all the time: a connection in neither set is none for HandOver
	return true
}

// forget gives up c, which was kept or lent or neither. The caller holds c.mu.
func (q *connQueue) forget(c *conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.kept.remove(c):
	case q.mu.leased.remove(c):
		q.sweeper.leftLocked(q.mu.leased.len)
	}
}

// each calls do for the connections that are in set, one of the queue's, from the
// beginning of the call to its end. It may call it for others, and twice for one. The
// caller does not hold mu, nor does do run with it: no matter how many connections there
// are, others don't wait for it.
func (q *connQueue) each(set *connSet, do func(c *conn)) {
	var part [connsPerChunk]*conn
	for n, end := 0, math.MaxInt; ; {
		q.mu.Lock()
		n, end = set.slice(&part, end)
		q.mu.Unlock()
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
func (q *connQueue) closeConns(hangUp func(c *conn)) {
	q.each(&q.mu.kept, hangUp)
	q.each(&q.mu.leased, (*conn).hangUpResuming)
}

// closeKept closes the connections that net/http would close if it knew of them, now that it takes
// no more, because q is closed: those that are kept, queued, or were parked until just now.
func (q *connQueue) closeKept() {
	q.closeConns((*conn).hangUp)
	q.mu.Lock()
	ready := q.mu.ready
	q.mu.ready = nil
	q.mu.Unlock()
	for _, nc := range ready {
		switch nc.(type) {
		case *conn, guardConn:
		default:
			nc.Close()
			q.told <- struct{}{}
		}
	}
}

// acceptLoop accepts connections until the listener fails for good. Failures that
// pass are logged and waited out as net/http does.
func (q *connQueue) acceptLoop() error {
	var delay time.Duration
	for {
		nc, err := q.from.Accept()
		if err != nil {
			//lint:ignore SA1019 it is what net/http asks for
			if ne, ok := err.(net.Error); !ok || !ne.Temporary() || q.call.ended.Load() {
				return err
			}
			delay = min(max(2*delay, acceptDelayMin), acceptDelayMax)
			q.server.logf("http: Accept error: %v; retrying in %v", err, delay)
			time.Sleep(delay)
			continue
		}
		delay = 0
		q.accepted(nc)
	}
}

// net/http's pauses after an Accept that failed.
const (
	acceptDelayMin = 5 * time.Millisecond
	acceptDelayMax = time.Second
)

// accepted takes a new connection in.
func (q *connQueue) accepted(nc net.Conn) {
	pc, ok := nc.(*percore.Conn)
	if ok && q.call.keeps {
		q.admitting.Store(true)
		q.newConn(pc).start()
		q.admitting.Store(false)
		return
	}
	if !ok {
		q.server.stats.add(countForeign, 1)
		q.call.warnForeign(nc)
	}
	if q.call.tls != nil {
		nc = tls.Server(nc, q.call.tls)
	}
	q.introduce(nc)
}

// warnForeign tells the log, once, that connections could be parked if not for their type.
func (call *serveCall) warnForeign(nc net.Conn) {
	if !call.keeps || fastpath.EngineIsNet() || !call.foreign.CompareAndSwap(false, true) {
		return
	}
	call.server.logf("httpadapter: connections of type %T are served but not parked, and FastPath has no "+
		"effect on them: while idle they keep a goroutine and buffers, as with net/http. Only a *percore.Conn "+
		"is parked: give Serve the listener that percore.Listen returns, without a wrapper. %s", nc, insteadOf(nc))
}

// insteadOf says what to use in the place of the wrapper that has made nc.
func insteadOf(nc net.Conn) string {
	if _, ok := nc.(*tls.Conn); ok {
		return "For TLS call ServeTLS in the place of tls.NewListener"
	}
	return "percore.ListenConfig limits connections by MaxConns, and reads PROXY headers by ProxyProtocol; " +
		"TLS is served by ServeTLS"
}

// introduce has net/http take a connection that isn't ours, and returns when the user
// has been told of it: of one of the call's at a time, and before Serve returns.
func (q *connQueue) introduce(nc net.Conn) {
	q.call.introducing.Lock()
	defer q.call.introducing.Unlock()
	if !q.push(nc) {
		nc.Close()
		return
	}
	<-q.told
}

// introduced lets introduce go on when net/http has told the user of the connection,
// which it does before it accepts the next, or returns.
func (q *connQueue) introduced() {
	if q.introduces {
		q.introduces = false
		q.told <- struct{}{}
	}
}
