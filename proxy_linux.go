//go:build !percore_net

package percore

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/sys"
)

// headers are the connections of an acceptor whose PROXY headers are awaited, and those whose
// headers have been read since and that Accept has not returned yet:
//
//	state      in       ends by
//	awaited    awaited  its callback: the header is whole (received), or it is to be closed
//	received   ready    Accept, which asks the user
//	accepted   neither  the user
//
// Of the callback and the listener's Close, the one that takes a connection out of awaited decides
// its fate. Close also closes those that are ready.
type headers struct {
	mu      sync.Mutex
	awaited map[*headerWait]struct{} // guarded by mu
	ready   []*headerWait            // guarded by mu; oldest first
	closed  bool                     // guarded by mu
}

// add adds a connection, unless the listener is closed.
func (h *headers) add(w *headerWait) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.awaited == nil {
		h.awaited = make(map[*headerWait]struct{})
	}
	h.awaited[w] = struct{}{}
	return true
}

// remove takes an awaited connection out, and reports whether it was there.
func (h *headers) remove(w *headerWait) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.awaited[w]
	delete(h.awaited, w)
	return ok
}

// received makes an awaited connection ready, and reports whether it was there.
func (h *headers) received(w *headerWait) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.awaited[w]
	if ok {
		delete(h.awaited, w)
		h.ready = append(h.ready, w)
	}
	return ok
}

// next returns the next connection that is ready, or nil.
func (h *headers) next() *headerWait {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ready) == 0 {
		return nil
	}
	w := h.ready[0]
	h.ready[0] = nil
	if h.ready = h.ready[1:]; len(h.ready) == 0 {
		h.ready = nil // a burst's array is not kept
	}
	return w
}

// close closes all connections, now that none are accepted any more.
func (h *headers) close() {
	h.mu.Lock()
	h.closed = true
	all := h.ready
	for w := range h.awaited {
		all = append(all, w)
	}
	h.ready, h.awaited = nil, nil
	h.mu.Unlock()
	for _, w := range all {
		_ = w.c.Close()
	}
}

// headerWait is a connection whose header is awaited, as the engine's handler.
type headerWait struct {
	a      *acceptor
	c      *Conn
	header headerReader
	client proxyproto.Header // once it is there
}

// await has w called back for the rest of the header.
func (w *headerWait) await() {
	fd := w.c.sock.fd
	_ = fd.SetReadDeadline(time.Now().Add(w.a.listener.proxy.timeout)) // fails if it is closed, as the next does
	w.arm()
}

func (w *headerWait) arm() {
	if err := w.c.sock.fd.NotifyReadable(w); err != nil {
		w.end(err)
	}
}

// OnReadable reads as much of the header as is there. It runs on the connection's loop.
func (w *headerWait) OnReadable(err error) {
	whole := false
	if err == nil {
		var failed error
		err = w.c.sock.fd.Control(func(fd int) syscall.Errno {
			w.client, whole, failed = w.header.read(fd)
			return 0
		})
		if err == nil {
			err = failed
		}
	}
	switch {
	case err != nil:
		w.end(err)
	case whole:
		_ = w.c.sock.fd.SetReadDeadline(time.Time{})
		if w.a.headers.received(w) {
			w.a.ready.Wake()
		}
	default:
		w.arm()
	}
}

// end closes the connection, unless the listener's Close has, since the header can't be had.
func (w *headerWait) end(err error) {
	if !w.a.headers.remove(w) {
		return
	}
	if err == os.ErrDeadlineExceeded {
		err = errHeaderTimeout
	}
	w.a.listener.proxy.reject(w.c.RemoteAddr(), err)
	go w.c.Close() // it may block
}

// headerReader reads the header at the start of a socket's stream, exactly, in parts if need be. It
// looks at what has arrived before it takes of it the bytes that belong to the header: so the rest
// stays in the kernel, and while the header is not whole nothing does, which would be an
// event over and over.
type headerReader struct{ got []byte }

// peekBytes holds nearly all headers in one piece: without extensions they have 232 bytes at most.
const peekBytes = 512

// read reads as much as is there, of a socket that nothing else reads from. whole says that h is the
// header. It fails when there can't be one any more.
func (r *headerReader) read(fd int) (h proxyproto.Header, whole bool, err error) {
	var buf [peekBytes]byte
	for {
		n, errno := sys.PeekAll(fd, buf[:])
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			return h, false, nil
		case errno != 0 && len(r.got) == 0, errno == 0 && n == 0 && len(r.got) == 0:
			return h, false, errNoHeader
		case errno != 0:
			return h, false, os.NewSyscallError("read", errno)
		case n == 0:
			return h, false, errHeaderEnded
		}
		had := len(r.got)
		r.got = append(r.got, buf[:n]...)
		length, complete, err := proxyproto.Scan(r.got)
		if err != nil {
			return h, false, err
		}
		if complete {
			n = length - had
		}
		taken, errno := sys.Recv(fd, buf[:n], false)
		if errno != 0 {
			taken = 0 // the bytes stay; the next look tells
		}
		r.got = r.got[:had+taken]
		if complete && taken == n {
			h, err := proxyproto.Parse(r.got)
			r.got = nil
			return h, err == nil, err
		}
	}
}

// takeProxied is take for a listener with a ProxyProtocol.
func (a *acceptor) takeProxied(nfd, index int, from *unix.RawSockaddrAny) (c *Conn, backoff bool, err error) {
	l := a.listener
	peer := parseAddr(from)
	if !l.proxy.trusts(peer.addrPort()) {
		if l.proxy.serveUntrusted {
			return a.takeFrom(nfd, index, from, proxyproto.Header{})
		}
		sys.Close(nfd)
		l.admission.release()
		l.proxy.refuse(peer.netAddr())
		return nil, false, nil
	}
	var header headerReader
	h, whole, err := header.read(nfd)
	switch {
	case err != nil:
		l.proxy.reject(peerAddr(from), err)
		sys.Close(nfd)
		l.admission.release()
		return nil, false, nil
	case whole:
		return a.takeFrom(nfd, index, from, h)
	}
	c, err = newConn(a.loopFor(index), nfd, l.connOptions, from)
	if err != nil {
		l.admission.release()
		return nil, true, err
	}
	c.sock.options = l.awaiting
	w := &headerWait{a: a, c: c, header: header}
	if !a.headers.add(w) {
		c.Close()
		return nil, false, net.ErrClosed
	}
	w.await()
	return nil, false, nil
}

// takeReceived returns the connection if the user wants it, otherwise nil.
func (w *headerWait) takeReceived() *Conn {
	l := w.a.listener
	w.c.sock.setClient(w.client)
	if l.admission.asks() && !w.admits() {
		return nil
	}
	w.c.sock.options = l.connOptions
	l.count(countAccepted)
	return w.c
}

func (w *headerWait) admits() (wanted bool) {
	defer func() { // also if the user's function panics
		if !wanted {
			w.c.Close()
		}
	}()
	c := w.c
	return w.a.listener.admission.admits(addrPortOf(c.LocalAddr()), c.RemoteAddrPort())
}

// peerAddr returns the address that accept4 brought.
func peerAddr(from *unix.RawSockaddrAny) net.Addr {
	if from.Addr.Family == unix.AF_UNIX {
		return unixAddr(from)
	}
	peer := parseAddr(from)
	return peer.netAddr()
}

// setClient gives the connection the addresses in its header, if there are any.
func (s *sock) setClient(h proxyproto.Header) {
	local, remote := clientAddrs(h)
	if local == nil {
		return
	}
	s.peer = rawAddrOf(h.Source)
	s.addrs.Store(&addrPair{local: local, remote: remote, fixed: true})
}

// clientAddrPorts returns the addresses of a connection with the header h.
func clientAddrPorts(nfd int, from *unix.RawSockaddrAny, h proxyproto.Header) (local, remote netip.AddrPort) {
	if l, r := clientAddrs(h); l != nil {
		return addrPortOf(l), addrPortOf(r)
	}
	return socketAddrs(nfd, from)
}
