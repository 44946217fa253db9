//go:build !percore_net

package percore

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/sys"
)

// await has w called back for the rest of the header.
func (w *arrival) await() {
	fd := w.c.sock.fd
	_ = fd.SetReadDeadline(time.Now().Add(w.a.listener.proxy.timeout)) // fails if it is closed, as the next does
	w.arm()
}

func (w *arrival) arm() {
	if err := w.c.sock.fd.NotifyReadable(w); err != nil {
		w.end(err)
	}
}

// OnReadable reads as much of the header as is there. It runs on the connection's loop.
func (w *arrival) OnReadable(err error) {
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
		if w.a.arrivals.received(w) {
			w.a.ready.Wake()
		}
	default:
		w.arm()
	}
}

// end closes the connection, unless the listener's Close has, since the header can't be had.
func (w *arrival) end(err error) {
	if !w.a.arrivals.remove(w) {
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
	w := &arrival{a: a, c: c, header: header, options: l.connOptions, counter: countAccepted}
	if !a.arrivals.add(w) {
		c.Close()
		return nil, false, net.ErrClosed
	}
	w.await()
	return nil, false, nil
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
