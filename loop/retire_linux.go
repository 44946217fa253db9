package loop

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

// retireTimeout is for how long a peer of a connection that was closed may keep
// us waiting without taking anything. It is what the kernel grants a peer of its
// own orphans, sockets without a descriptor: 8 retries, 102 s with the shortest
// time-out (tcp_orphan_retries, tcp(7); RFC 1122, 4.2.3.5 wants 100 s at least).
const retireTimeout = 100 * time.Second

// retire does for the peer of a closed descriptor what close(2) would do, and
// leaves it open for those who hold it:
//
//	close(2) would                         retire
//	send the rest, then a FIN; answer      shuts both directions down, with the same effect
//	what comes with a reset
//	reset the connection, because          disconnects, with the same effect: what was not sent is
//	something was not read, or SO_LINGER   thrown away, so that the kernel needs it no more
//	is on with a time of 0
//	do nothing, since there is a           nothing. That there may be is all we know, if the raw
//	duplicate of the descriptor            descriptor was handed out
//
// The kernel gives up on an orphan whose peer takes nothing, but not on a socket
// that has a descriptor, as long as the peer answers. So the user time-out is set.
func (f *FD) retire() {
	if f.exposed.Load() {
		return
	}
	fd := int(f.sysfd)
	linger, _ := sys.GetsockoptLinger(fd)
	unread, _ := sys.Unread(fd)
	if linger.Onoff != 0 && linger.Linger == 0 || unread > 0 {
		if sys.Disconnect(fd) == 0 {
			return
		}
	}
	_ = sys.Shutdown(fd, unix.SHUT_RDWR) // ENOTCONN: the peer has reset it
	if ms, errno := sys.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); errno == 0 && (ms == 0 || ms > int(retireTimeout.Milliseconds())) {
		_ = sys.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(retireTimeout.Milliseconds()))
	}
}
