package percore

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// merged accepts from several sockets that listen on one address: those of a
// predecessor that ran on the engine. Package net can't wait for several sockets at
// once, so that a goroutine per socket accepts a connection and then waits for a call
// of Accept. With a ProxyProtocol it accepts from one socket, too, and a goroutine per connection
// reads its header in between.
type merged struct {
	streamListener // the first: its address and File
	all            []streamListener
	proxy          *proxyRules   // immutable; nil: no headers are awaited
	headers        chan struct{} // a token for each connection whose header is awaited, or that has come since

	accepted chan acceptResult
	closed   chan struct{}
	begin    sync.Once // starts the goroutines
	end      sync.Once
	running  sync.WaitGroup

	mu struct {
		sync.Mutex
		deadline time.Time
		changed  chan struct{} // closed when the deadline is moved
		awaited  map[net.Conn]struct{}
	}
}

// acceptResult is what Accept returns, and the addresses in the connection's PROXY header; nil if
// there are none.
type acceptResult struct {
	conn          net.Conn
	err           error
	local, remote net.Addr
}

// headersMax is how many connections a merged accepts whose headers are awaited: as Accept may be
// waiting for MaxConns, there must be an end.
const headersMax = 64

func newMerged(all []streamListener) *merged { return newMergedWith(all, nil) }

func newMergedWith(all []streamListener, proxy *proxyRules) *merged {
	m := &merged{streamListener: all[0], all: all, proxy: proxy, accepted: make(chan acceptResult), closed: make(chan struct{})}
	m.headers = make(chan struct{}, headersMax)
	m.mu.changed = make(chan struct{})
	m.mu.awaited = make(map[net.Conn]struct{})
	return m
}

// Accept returns the next connection of any socket.
func (m *merged) Accept() (net.Conn, error) {
	a := m.acceptResult()
	return a.conn, a.err
}

func (m *merged) acceptResult() acceptResult {
	m.begin.Do(func() {
		for _, l := range m.all {
			m.running.Go(func() { m.acceptFrom(l) })
		}
	})
	for {
		if a, ok := m.next(); ok {
			return a
		}
	}
}

// next returns Accept's result, or false if the deadline was moved meanwhile.
func (m *merged) next() (acceptResult, bool) {
	m.mu.Lock()
	deadline, changed := m.mu.deadline, m.mu.changed
	m.mu.Unlock()
	select {
	case <-m.closed: // takes precedence over the rest
		return acceptResult{err: m.opError(net.ErrClosed)}, true
	default:
	}
	var expired <-chan time.Time
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return acceptResult{err: m.opError(os.ErrDeadlineExceeded)}, true
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case a := <-m.accepted:
		return a, true
	case <-m.closed:
		return acceptResult{err: m.opError(net.ErrClosed)}, true
	case <-expired:
		return acceptResult{err: m.opError(os.ErrDeadlineExceeded)}, true
	case <-changed:
		return acceptResult{}, false
	}
}

// acceptFrom hands over the connections that it accepts from a socket until that is closed.
func (m *merged) acceptFrom(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil || m.proxy == nil {
			if !m.deliver(acceptResult{conn: c, err: err}) {
				return
			}
			continue
		}
		select {
		case m.headers <- struct{}{}:
		case <-m.closed:
			c.Close()
			return
		}
		m.running.Go(func() {
			m.receive(c)
			<-m.headers
		})
	}
}

// deliver hands a result to Accept. It reports false, and closes the connection, if the listener is
// closed first.
func (m *merged) deliver(a acceptResult) bool {
	select {
	case m.accepted <- a:
		return true
	case <-m.closed:
		if a.err == nil {
			a.conn.Close()
		}
		return false
	}
}

// receive reads a connection's header, if one is awaited, and delivers the connection.
func (m *merged) receive(c net.Conn) {
	a := acceptResult{conn: c}
	switch trusted := m.proxy.trusts(addrPortOf(c.RemoteAddr())); {
	case trusted:
		if !m.await(c, true) {
			return
		}
		h, err := m.proxy.receive(c)
		if !m.await(c, false) {
			return // Close has closed it
		}
		if err != nil {
			m.proxy.reject(c.RemoteAddr(), err)
			c.Close()
			return
		}
		a.local, a.remote = clientAddrs(h)
	case !m.proxy.serveUntrusted:
		m.proxy.refuse(c.RemoteAddr())
		c.Close()
		return
	}
	m.deliver(a)
}

// await notes that a connection's header is awaited, or not any more, and reports whether the
// listener is open.
func (m *merged) await(c net.Conn, begin bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.awaited == nil {
		if begin {
			c.Close()
		}
		return false
	}
	if begin {
		m.mu.awaited[c] = struct{}{}
	} else {
		delete(m.mu.awaited, c)
	}
	return true
}

// SetDeadline sets the time from which Accept fails.
func (m *merged) SetDeadline(t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.deadline = t
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
	return nil
}

// Close closes all sockets. When it returns, the goroutines have ended.
func (m *merged) Close() error {
	m.end.Do(func() {
		m.begin.Do(func() {}) // none start from now on
		close(m.closed)
		for _, l := range m.all {
			l.Close()
		}
		m.mu.Lock()
		awaited := m.mu.awaited
		m.mu.awaited = nil
		m.mu.Unlock()
		for c := range awaited {
			c.Close()
		}
	})
	m.running.Wait()
	return nil
}

func (m *merged) opError(err error) error {
	return &net.OpError{Op: "accept", Net: m.Addr().Network(), Addr: m.Addr(), Err: err}
}

// SyscallConn returns a raw connection whose Control is called for each socket.
func (m *merged) SyscallConn() (syscall.RawConn, error) {
	all := make(rawConns, 0, len(m.all))
	for _, l := range m.all {
		raw, err := l.SyscallConn()
		if err != nil {
			return nil, err
		}
		all = append(all, raw)
	}
	return all, nil
}

// rawConns are those of several listening sockets. Read and Write fail on the
// first as they do on every other.
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
