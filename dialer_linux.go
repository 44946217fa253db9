//go:build !percore_net

package percore

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sockaddr"
	"github.com/percore/percore/internal/sys"
)

func init() {
	seam.TakeOver = func(network string, nc net.Conn) (net.Conn, error) {
		return new(Dialer).takeOver(network, nc, false)
	}
}

// hold keeps the dialer's own group alive until release, so that dialing with a group that has ended
// fails before there is a connection. The default group never ends for a dialer.
func (d *Dialer) hold(network string) error {
	if d.Group != nil && !(*engine.Group)(d.Group).Retain() {
		return &net.OpError{Op: "dial", Net: network, Source: d.LocalAddr, Err: engine.ErrStopped}
	}
	return nil
}

func (d *Dialer) release() {
	if d.Group != nil {
		(*engine.Group)(d.Group).Release()
	}
}

// takeOver makes a Conn of a duplicate of nc's descriptor, since package net never gives a descriptor
// away. It closes nc unless it succeeds and keep is set. The duplicate is the same open file,
// connected, with all its options; closing nc only takes it out of the runtime's poller.
//
// It fails if the process is out of descriptors or memory. The peer then sees a connection that is
// closed at once.
func (d *Dialer) takeOver(network string, nc net.Conn, keep bool) (c *Conn, err error) {
	defer func() {
		if !keep || err != nil {
			nc.Close()
		}
		if err != nil {
			err = &net.OpError{Op: "dial", Net: network, Source: d.LocalAddr, Addr: nc.RemoteAddr(), Err: err}
		}
	}()
	group, err := acquireGroup((*engine.Group)(d.Group))
	if err != nil {
		return nil, err
	}
	defer group.Release() // the connection holds it, too
	fd, err := dupOf(nc.(syscall.Conn))
	if err != nil {
		return nil, err
	}
	c, err = newConn(group.Place(), fd, d.connOptions(network, fd), nil)
	if err != nil {
		return nil, err
	}
	conns.dialed.Add(1)
	if keep {
		_ = c.sock.fd.RawControl(func(uintptr) {}) // since there is a duplicate: see netHalf
	}
	// The kernel no longer knows the address of a peer that has gone since.
	if remote, ok := nc.RemoteAddr().(*net.TCPAddr); ok && remote.Zone == "" {
		c.sock.peer = sockaddr.From(remote.AddrPort())
	} else {
		c.sock.addrs.Store(&addrPair{local: nc.LocalAddr(), remote: nc.RemoteAddr()})
	}
	return c, nil
}

// The options of dialed connections, except altered ones. Those over Multipath TCP are plain.
var dialedTCP, dialedPlain = optionsOf(engine.TCP), optionsOf(engine.Plain)

func optionsOf(kind engine.StreamKind) map[string]*connOptions {
	all := make(map[string]*connOptions)
	for _, network := range []string{"tcp", "tcp4", "tcp6", "unix"} {
		all[network] = &connOptions{net: network, kind: kind}
	}
	return all
}

// connOptions returns the options of a connection. It asks the kernel which protocol the socket
// uses, since Multipath TCP depends on GODEBUG, and package net may fall back to TCP.
func (d *Dialer) connOptions(network string, fd int) *connOptions {
	dialed, altered := dialedPlain[network], false
	if proto, _ := sys.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); proto == unix.IPPROTO_TCP {
		dialed = dialedTCP[network]
		altered = (d.Control != nil || d.ControlContext != nil) && !sys.IsPlainTCP(fd)
	}
	if altered {
		dialed = &connOptions{net: dialed.net, kind: dialed.kind}
		dialed.altered.Store(true)
	}
	return dialed
}
