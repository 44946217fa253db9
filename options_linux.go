//go:build !percore_net

package percore

import (
	"math"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

func (s *sock) setNoDelay(on bool) error {
	return s.setInt(unix.IPPROTO_TCP, unix.TCP_NODELAY, boolInt(on))
}

func (s *sock) setLinger(sec int) error {
	l := unix.Linger{}
	if sec >= 0 {
		l = unix.Linger{Onoff: 1, Linger: int32(sec)}
	}
	return syscallError("setsockopt", s.fd.Control(func(fd int) syscall.Errno {
		return sys.SetsockoptLinger(fd, &l)
	}))
}

func (s *sock) setKeepAlive(on bool) error {
	return s.setInt(unix.SOL_SOCKET, unix.SO_KEEPALIVE, boolInt(on))
}

func (s *sock) setKeepAlivePeriod(d time.Duration) error {
	if d < 0 {
		return nil // as package net, also on a closed connection
	}
	return s.setKeepAliveParams(net.KeepAliveConfig{Idle: d, Interval: -1, Count: -1})
}

func (s *sock) setKeepAliveConfig(config net.KeepAliveConfig) error {
	if err := s.setKeepAlive(config.Enable); err != nil {
		return err
	}
	return s.setKeepAliveParams(config)
}

func (s *sock) setKeepAliveParams(config net.KeepAliveConfig) error {
	return syscallError("setsockopt", s.fd.Control(func(fd int) syscall.Errno {
		return setKeepAliveParams(fd, config)
	}))
}

func (s *sock) SetReadBuffer(bytes int) error {
	return s.setInt(unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
}

func (s *sock) SetWriteBuffer(bytes int) error {
	return s.setInt(unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
}

func (s *sock) setInt(level, opt, value int) error {
	return syscallError("setsockopt", s.fd.Control(func(fd int) syscall.Errno {
		return sys.SetsockoptInt(fd, level, opt, value)
	}))
}

func (s *sock) tcpInfo() (to TCPInfo, err error) {
	err = syscallError("getsockopt", s.fd.Control(func(fd int) syscall.Errno {
		from, errno := sys.TCPInfo(fd)
		if errno == 0 {
			to = tcpInfoOf(from)
		}
		return errno
	}))
	return to, err
}

// tcpInfoOf converts the kernel's struct, whose times are microseconds (include/uapi/linux/tcp.h).
func tcpInfoOf(from *unix.TCPInfo) TCPInfo {
	to := TCPInfo{
		RTT:           time.Duration(from.Rtt) * time.Microsecond,
		RTTVar:        time.Duration(from.Rttvar) * time.Microsecond,
		RTO:           time.Duration(from.Rto) * time.Microsecond,
		DeliveryRate:  from.Delivery_rate,
		SegmentBytes:  int(from.Snd_mss),
		Window:        int(from.Snd_cwnd),
		Unacked:       int(from.Unacked),
		Lost:          int(from.Lost),
		Sent:          uint64(from.Data_segs_out),
		Retransmitted: uint64(from.Total_retrans),
		Spurious:      uint64(from.Dsack_dups),
		NotSent:       int(from.Notsent_bytes),
		BytesAcked:    from.Bytes_acked,
		BytesReceived: from.Bytes_received,
	}
	if from.Min_rtt != math.MaxUint32 { // otherwise nothing was measured
		to.MinRTT = time.Duration(from.Min_rtt) * time.Microsecond
	}
	return to
}

// mptcpInfo is MPTCP_INFO of <linux/mptcp.h>.
const mptcpInfo = 1

// multipathTCP reports whether the protocol is MPTCP and has not fallen back to TCP. If it has, the
// kernel has no MPTCP_INFO for the socket (EOPNOTSUPP or ENOPROTOOPT, since Linux 5.16).
func (s *sock) multipathTCP() bool {
	is := false
	_ = s.fd.Control(func(fd int) syscall.Errno {
		proto, errno := sys.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if errno != 0 || proto != unix.IPPROTO_MPTCP {
			return 0
		}
		_, errno = sys.GetsockoptInt(fd, unix.SOL_MPTCP, mptcpInfo)
		is = errno != syscall.EOPNOTSUPP && errno != syscall.ENOPROTOOPT
		return 0
	})
	return is
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The defaults of package net and of net.KeepAliveConfig.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 9
)

// setKeepAliveParams sets the parameters in config: 0 means the default, and a negative value leaves
// the parameter as it is. Times are rounded up to the kernel's whole seconds (tcp(7), TCP_KEEPIDLE,
// TCP_KEEPINTVL, TCP_KEEPCNT).
func setKeepAliveParams(fd int, config net.KeepAliveConfig) syscall.Errno {
	set := func(opt, value, byDefault int) syscall.Errno {
		switch {
		case value < 0:
			return 0
		case value == 0:
			value = byDefault
		}
		return sys.SetsockoptInt(fd, unix.IPPROTO_TCP, opt, value)
	}
	if errno := set(unix.TCP_KEEPIDLE, wholeSeconds(config.Idle), int(keepAliveIdle/time.Second)); errno != 0 {
		return errno
	}
	if errno := set(unix.TCP_KEEPINTVL, wholeSeconds(config.Interval), int(keepAliveInterval/time.Second)); errno != 0 {
		return errno
	}
	return set(unix.TCP_KEEPCNT, config.Count, keepAliveCount)
}

// wholeSeconds rounds up; a negative duration stays negative.
func wholeSeconds(d time.Duration) int {
	switch {
	case d < 0:
		return -1
	case d > math.MaxInt32*time.Second:
		return math.MaxInt32 // which the kernel refuses
	}
	return int((d + time.Second - 1) / time.Second)
}
