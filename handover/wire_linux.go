//go:build !percore_net

package handover

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

// descriptorsTravel says that there are sockets on which a process passes descriptors to another.
const descriptorsTravel = true

// rightsBytesMax has room for all descriptors that a message can have. So the kernel cuts their list
// short only if this process can't have so many.
var rightsBytesMax = unix.CmsgSpace(4 * descriptorsMax)

func writeMsg(c *net.UnixConn, p []byte, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := c.WriteMsgUnix(p, rights, nil)
	if errors.Is(err, unix.ETOOMANYREFS) {
		return fmt.Errorf("%w: the user has more descriptors in unix sockets, not received, than RLIMIT_NOFILE", err)
	}
	return err
}

// readMsg receives a packet. The caller must close the descriptors, even if it fails. They are
// close-on-exec: ReadMsgUnix sets MSG_CMSG_CLOEXEC.
func readMsg(c *net.UnixConn, buf, oob []byte) (p []byte, fds descriptors, err error) {
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	n, oobn = max(n, 0), max(oobn, 0)
	// An empty message looks like the end, and may have descriptors.
	fds, parseErr := parseRights(oob[:oobn])
	switch {
	case err != nil:
		if n == 0 && len(fds) > 0 {
			err = fmt.Errorf("%w: empty, with %d descriptors", errMessage, len(fds))
		}
	case parseErr != nil:
		err = fmt.Errorf("%w: %v", errMessage, parseErr)
	case flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("%w: the kernel has passed on only %d of its descriptors: %s", errMessage, len(fds), raiseLimit)
	case flags&unix.MSG_TRUNC != 0 || n > packetBytes:
		err = fmt.Errorf("%w: a packet is longer than %d bytes", errMessage, packetBytes)
	}
	return buf[:n], fds, err
}

// hasCome reports whether readMsg wouldn't wait: a packet has come, or the end.
func hasCome(c *net.UnixConn) (yes bool) {
	_ = control(c, func(fd int) {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		yes = n > 0
	})
	return yes
}

// raiseLimit is the remedy for a lack of descriptors.
const raiseLimit = "raise the limit of descriptors (ulimit -n, RLIMIT_NOFILE, LimitNOFILE= in systemd)"

// parseRights returns the descriptors in control messages.
func parseRights(oob []byte) (fds descriptors, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		if part, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, part...)
		}
	}
	return fds, err
}

// socketpair returns both ends of a wire: one for this process, and a file for another's.
func socketpair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, err := connOf(fds[0])
	if err != nil {
		sys.Close(fds[1])
		return nil, nil, err
	}
	return ours, os.NewFile(uintptr(fds[1]), "handover"), nil
}

// connOf returns a connection on descriptor fd, which it closes.
func connOf(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	c, err := net.FileConn(f) // of a copy, close-on-exec
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// inherit returns a connection on descriptor fd, which it closes. It leaves the descriptor alone if it
// is none of start's, or if a process of another user has made the pair of sockets: that user must not
// feed a program that is set-user-ID with sockets (SO_PEERCRED in unix(7)).
func inherit(fd, uid int) (*net.UnixConn, error) {
	domain, errno := sys.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	typ, _ := sys.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if errno != 0 || domain != unix.AF_UNIX || typ != unix.SOCK_SEQPACKET {
		return nil, fmt.Errorf("descriptor %d is no socket of a predecessor's", fd)
	}
	maker, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, os.NewSyscallError("getsockopt", err)
	}
	if int(maker.Uid) != uid {
		return nil, fmt.Errorf("the predecessor runs as user %d, and this process as user %d:"+
			" a handover is between processes of the same user", maker.Uid, uid)
	}
	return connOf(fd)
}

// checkDescriptors fails if the process can't have so many more descriptors.
func checkDescriptors(more uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	need := more
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		need += uint64(len(entries))
	}
	if need > limit.Cur {
		return fmt.Errorf("the connections take %d descriptors with those in use, and the limit is %d: %s", need, limit.Cur, raiseLimit)
	}
	return nil
}

// A place is what the connections of a listener have from its socket.
type place struct{ family sys.Family }

// placeOf returns the place of a listening socket.
func placeOf(fd int) (p place, err error) {
	p.family, err = sys.FamilyOf(fd)
	if err == nil && !sys.Listens(fd) {
		err = errors.New("a descriptor is no listening socket")
	}
	return p, err
}

// check fails unless fd is a connection such as comes in at the place. It has ended if the peer has
// reset it; otherwise it may be adopted.
func (p place) check(fd int) (ended bool, err error) {
	return p.family.CheckConn(fd, new(unix.RawSockaddrAny))
}
