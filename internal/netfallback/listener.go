// Package netfallback accepts connections with package net where percore doesn't use its engine: off
// Linux, with the build tag percore_net, and when the environment switches the engine off. It adds what
// package net's listeners lack: several sockets as one listener, limits, and the PROXY protocol.
package netfallback

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/sockaddr"
)

// Socket has the methods that *net.TCPListener and *net.UnixListener share.
type Socket interface {
	net.Listener
	syscall.Conn
	SetDeadline(t time.Time) error
	File() (*os.File, error)
}

// Listener accepts from sockets that listen at the same address. Package net can't wait for several at
// once. So a goroutine for each socket accepts a connection, and then waits for a call of Accept:
//
//	sockets  PROXY headers  Accept gets a connection from
//	one      no             the socket
//	several  no             the socket's goroutine
//	any      yes            a goroutine that reads the connection's header; it gets it from the socket's
type Listener struct {
	// immutable
	sockets []Socket
	limits  *accepting.Limits     // nil: no limits
	proxy   *accepting.ProxyRules // nil: no headers are expected
	direct  bool                  // there are no goroutines

	silentMin time.Duration // how long a header may be awaited before the connection makes room

	counts accepting.Counts

	// used by the goroutines
	begin    sync.Once // starts the goroutines
	running  sync.WaitGroup
	accepted chan result
	headers  chan struct{} // a token per connection whose header is awaited or has arrived
	end      sync.Once
	done     chan struct{} // closed by Close

	mu struct {
		sync.Mutex
		state
		awaited map[net.Conn]time.Time // since when the connections' headers are awaited; nil: the listener is closed
	}
}

// state is what every call of Accept must check again when it changes.
type state struct {
	closed   bool
	deadline time.Time
	changed  chan struct{} // closed at the next change, or when a slot is free; nil before look
}

// result is what Accept returns, and the addresses and the TLVs in the connection's PROXY header, or
// nil and "".
type result struct {
	conn          net.Conn
	err           error
	local, remote net.Addr
	tlvs          string
}

// headersMax limits the accepted connections whose headers are awaited. There must be a limit,
// because Accept may be waiting for MaxConns. When there are that many, the one that has been silent for
// longest makes room for the next, as at the engine's MaxConns.
const headersMax = 64

// New returns a listener on the sockets. The listener owns them from then on.
func New(sockets []Socket, config *accepting.Config) *Listener {
	l := &Listener{sockets: sockets}
	l.limits = config.Limits(&l.counts, l.wake)
	l.proxy = config.ProxyRules(l.Addr(), &l.counts)
	l.direct = len(sockets) == 1 && l.proxy == nil
	if l.proxy != nil {
		l.silentMin = l.proxy.Timeout / accepting.SilentPart
	}
	if !l.direct {
		l.accepted = make(chan result)
		l.headers = make(chan struct{}, headersMax)
		l.done = make(chan struct{})
		l.mu.awaited = make(map[net.Conn]time.Time)
	}
	return l
}

// Accept waits until there is room, and then for a connection that is wanted.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		if err := l.acquire(); err != nil {
			return nil, l.opError(err)
		}
		r := l.next()
		if r.err != nil {
			l.limits.Release()
			return nil, r.err
		}
		if l.limits == nil {
			return r.conn, nil
		}
		if r.local == nil {
			r.local, r.remote = r.conn.LocalAddr(), r.conn.RemoteAddr()
		}
		s := &slot{l.limits, r.local, r.remote, r.tlvs}
		if s.admit(r.conn) {
			return newLimited(r.conn, s), nil
		}
	}
}

// acquire waits for a slot. It fails when the listener is closed or its deadline passes.
func (l *Listener) acquire() error {
	if l.limits == nil {
		return nil
	}
	_, err := l.wait(nil, func() bool {
		for l.limits.MayAccept() {
			if l.limits.Acquire() {
				return true
			}
		}
		return false
	})
	return err
}

// next waits for a connection.
func (l *Listener) next() result {
	if l.direct {
		nc, err := l.sockets[0].Accept()
		return result{conn: nc, err: err}
	}
	l.begin.Do(func() {
		for _, s := range l.sockets {
			l.running.Go(func() { l.acceptFrom(s) })
		}
	})
	r, err := l.wait(l.accepted, func() bool { return false })
	if err != nil {
		return result{err: l.opError(err)}
	}
	return r
}

// wait waits for a result from accepted, which may be nil, or until done reports true, which is asked
// whenever the state has changed. It fails when the listener is closed or its deadline passes.
func (l *Listener) wait(accepted <-chan result, done func() bool) (r result, err error) {
	for {
		s := l.look() // before done, so that a slot that is freed later is a change
		if s.closed {
			return r, net.ErrClosed
		}
		if done() {
			return r, nil
		}
		var expired <-chan time.Time
		if !s.deadline.IsZero() {
			left := time.Until(s.deadline)
			if left <= 0 {
				return r, os.ErrDeadlineExceeded
			}
			expired = time.After(left)
		}
		select {
		case r = <-accepted:
			return r, nil
		case <-s.changed:
		case <-expired:
			return r, os.ErrDeadlineExceeded
		}
	}
}

// look returns the state. It also makes the channel that reports a change of the state, so that a
// listener that just passes calls on to package net has no such channel. A channel made in a bubble
// of testing/synctest can't be closed outside the bubble.
func (l *Listener) look() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.changed == nil {
		l.mu.changed = make(chan struct{})
	}
	return l.mu.state
}

// change makes a change and lets all calls of Accept check the state again.
func (l *Listener) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	if l.mu.changed != nil {
		close(l.mu.changed)
		l.mu.changed = nil
	}
}

func (l *Listener) wake() { l.change(func() {}) }

// acceptFrom accepts connections from a socket and passes them on until the listener is closed.
func (l *Listener) acceptFrom(s Socket) {
	for {
		c, err := s.Accept()
		if err != nil || l.proxy == nil {
			if !l.deliver(result{conn: c, err: err}) {
				return
			}
			continue
		}
		if !l.takeHeader() {
			c.Close()
			return
		}
		l.running.Go(func() {
			l.receive(c)
			<-l.headers
		})
	}
}

// takeHeader waits until one more header may be awaited, or reports false when the listener is closed.
func (l *Listener) takeHeader() bool {
	const pause = 10 * time.Millisecond // all may be waiting for Accept, not for a header
	for {
		select {
		case l.headers <- struct{}{}:
			return true
		case <-l.done:
			return false
		case <-time.After(pause):
			l.makeRoom()
		}
	}
}

// makeRoom closes the connection whose header has been awaited for longest, if that is too long.
func (l *Listener) makeRoom() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest net.Conn
	for c, since := range l.mu.awaited {
		if oldest == nil || since.Before(l.mu.awaited[oldest]) {
			oldest = c
		}
	}
	if oldest != nil && time.Since(l.mu.awaited[oldest]) >= l.silentMin {
		delete(l.mu.awaited, oldest)
		oldest.Close()
		l.counts.Add(accepting.MadeRoom)
	}
}

// deliver passes a result to Accept. If the listener is closed first, it closes the connection and
// reports false.
func (l *Listener) deliver(r result) bool {
	select {
	case l.accepted <- r:
		return true
	case <-l.done:
		if r.err == nil {
			r.conn.Close()
		}
		return false
	}
}

// receive reads a connection's header, if one is required, and delivers the connection.
func (l *Listener) receive(c net.Conn) {
	r := result{conn: c}
	switch trusted := l.proxy.Trusts(sockaddr.AddrPort(c.RemoteAddr())); {
	case trusted:
		if !l.await(c, true) {
			return
		}
		h, err := l.proxy.Receive(c)
		if !l.await(c, false) {
			return // Close has closed the connection
		}
		if err != nil {
			l.proxy.Reject(c.RemoteAddr(), err)
			c.Close()
			return
		}
		r.local, r.remote = h.Addrs()
		r.tlvs = h.TLVs
	case !l.proxy.ServeUntrusted:
		l.proxy.Refuse(c.RemoteAddr())
		c.Close()
		return
	}
	l.deliver(r)
}

// await records that a connection's header is awaited, or no longer is, and reports whether the
// listener is open. If it isn't, await closes the connection.
func (l *Listener) await(c net.Conn, begin bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		if begin {
			c.Close()
		}
		return false
	}
	if begin {
		l.mu.awaited[c] = time.Now()
	} else {
		delete(l.mu.awaited, c)
	}
	return true
}

// SetDeadline sets the time after which Accept fails.
func (l *Listener) SetDeadline(t time.Time) error {
	if l.direct {
		if err := l.sockets[0].SetDeadline(t); err != nil {
			return err
		}
	}
	l.change(func() { l.mu.deadline = t })
	return nil
}

// Close closes all sockets. When it returns, all of the listener's goroutines have ended.
func (l *Listener) Close() (err error) {
	l.begin.Do(func() {}) // no goroutine starts from now on
	l.end.Do(func() {
		if !l.direct {
			close(l.done)
		}
		var awaited map[net.Conn]time.Time
		l.change(func() {
			l.mu.closed = true
			awaited, l.mu.awaited = l.mu.awaited, nil
		})
		for c := range awaited {
			c.Close()
		}
	})
	for _, s := range l.sockets {
		if closeErr := s.Close(); err == nil {
			err = closeErr
		}
	}
	l.running.Wait()
	return err
}

func (l *Listener) opError(err error) error {
	return &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: err}
}

// Addr returns the address of the sockets.
func (l *Listener) Addr() net.Addr { return l.sockets[0].Addr() }

// SetUnlinkOnClose says whether Close removes the file of a unix socket.
func (l *Listener) SetUnlinkOnClose(unlink bool) {
	for _, s := range l.sockets {
		if u, ok := s.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(unlink)
		}
	}
}

// File returns a copy of the first socket.
func (l *Listener) File() (*os.File, error) { return l.sockets[0].File() }

// Files returns copies of all sockets.
func (l *Listener) Files() (files []*os.File, err error) {
	for _, s := range l.sockets {
		f, err := s.File()
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// SyscallConn returns a raw connection whose Control is called for each socket.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	var all rawConns
	for _, s := range l.sockets {
		raw, err := s.SyscallConn()
		if err != nil {
			return nil, err
		}
		all = append(all, raw)
	}
	return all, nil
}

// Counts returns the listener's counters, how many of its connections are open if it has limits, and
// how many may be; 0: no limit.
func (l *Listener) Counts() (counts *accepting.Counts, open, limit int) {
	return &l.counts, l.limits.Open(), l.limits.Max()
}

// IsFull reports whether Accept waits because as many are open as may be.
func (l *Listener) IsFull() bool { return l.limits.IsWaiting() }

// rawConns are the raw connections of several listening sockets. Read and Write fail on the first,
// as they would on every other.
type rawConns []syscall.RawConn

func (r rawConns) Control(f func(fd uintptr)) error {
	for _, raw := range r {
		if err := raw.Control(f); err != nil {
			return err
		}
	}
	return nil
}

func (r rawConns) Read(f func(fd uintptr) bool) error  { return r[0].Read(f) }
func (r rawConns) Write(f func(fd uintptr) bool) error { return r[0].Write(f) }
