package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// bindTo binds a socket that does not listen to a port of a loopback address, 0 for any. Connecting
// to it is refused, and no other process can take the port. The socket is -1 if the port is taken.
func (s *stage) bindTo(ip string, port int) (fd int, addr *net.TCPAddr) {
	s.Helper()
	family := unix.AF_INET
	var sa unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}
	if a := netip.MustParseAddr(ip); a.Is6() {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16(), Port: port}
	}
	fd = s.socket(family)
	switch err := unix.Bind(fd, sa); {
	case err == unix.EADDRINUSE && port != 0:
		return -1, nil
	case err != nil:
		s.Fatalf("bind: %v", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		s.Fatalf("getsockname: %v", err)
	}
	addr = &net.TCPAddr{IP: net.ParseIP(ip)}
	switch bound := bound.(type) {
	case *unix.SockaddrInet4:
		addr.Port = bound.Port
	case *unix.SockaddrInet6:
		addr.Port = bound.Port
	}
	return fd, addr
}

// socket returns a non-blocking socket that is closed when the test ends.
func (s *stage) socket(family int) int {
	s.Helper()
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		s.Fatalf("socket: %v", err)
	}
	s.Cleanup(func() { unix.Close(fd) })
	return fd
}

// deafen makes a bound socket listen with a full backlog, so that connecting takes forever: the
// kernel drops packets when there is no room.
func (s *stage) deafen(fd int) {
	s.Helper()
	bound, err := unix.Getsockname(fd)
	if err == nil {
		err = unix.Listen(fd, 0)
	}
	if err != nil {
		s.Fatalf("a listener that is full: %v", err)
	}
	family := unix.AF_INET
	if _, ok := bound.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	// Once one socket doesn't connect at once, no later one does.
	for range 16 {
		filler := s.socket(family)
		switch err := unix.Connect(filler, bound); {
		case err != nil && err != unix.EINPROGRESS:
			s.Fatalf("filling the backlog: %v", err)
		case err != nil && !pollable(filler, unix.POLLOUT, 100*time.Millisecond):
			return
		}
	}
	s.Fatalf("the backlog does not fill")
}

// deafEnd returns a loopback address that does not answer.
func (s *stage) deafEnd(ip string) *net.TCPAddr {
	s.Helper()
	fd, addr := s.bindTo(ip, 0)
	s.deafen(fd)
	s.nameAddr(addr, "deaf")
	return addr
}

// halfDead listens on 127.0.0.1, as "ln" in the transcript. It returns the port and a socket that
// is bound to the same port of ::1.
func (s *stage) halfDead() (port, v6 int) {
	s.Helper()
	for range 20 {
		alive := s.acceptAll("tcp4", "127.0.0.1:0").Addr().(*net.TCPAddr)
		if fd, _ := s.bindTo("::1", alive.Port); fd >= 0 {
			s.nameAddr(alive, "ln")
			return alive.Port, fd
		}
	}
	s.Fatalf("no port is free on both addresses")
	return 0, -1
}

// pollable reports whether fd becomes ready within d.
func pollable(fd int, events int16, d time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(p, int(d.Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// describeTimeout is describeError for errors that may be a timeout. Package net has two timeout
// errors with the same text. Which of them Dial returns depends on chance, because the context ends
// and the socket's deadline passes at the same time.
func describeTimeout(err error) string {
	var operr *net.OpError
	if !errors.As(err, &operr) || !operr.Timeout() {
		return describeError(err)
	}
	return fmt.Sprintf("%s text=%q temporary=%t", describeLayer(operr), operr, operr.Temporary())
}

// TestDiffDialWaits cancels dialing while it waits for the peer.
func TestDiffDialWaits(t *testing.T) {
	// begin dials a peer that does not answer and returns when the call is blocked.
	begin := func(s *stage, dial dialFunc, deaf net.Addr, ctx context.Context, d net.Dialer) *pending {
		return s.begin("Dial", func() string {
			c, err := dial(ctx, d, "tcp", deaf.String())
			if c != nil {
				c.Close()
			}
			return describeTimeout(err)
		})
	}
	const soon = 30 * time.Millisecond
	playDialScripts(t, []dialScript{{
		name:  "context cancelled",
		shows: []string{`context\.Canceled`, `<deaf>`},
		play: func(s *stage, dial dialFunc) {
			ctx, cancel := context.WithCancel(s.Context())
			blocked := begin(s, dial, s.deafEnd("127.0.0.1"), ctx, net.Dialer{})
			blocked.stillBlocked()
			cancel()
			blocked.end()
		},
	}, {
		name:  "deadline of the context",
		shows: []string{`text=".*i/o timeout"`, `<deaf>`},
		play: func(s *stage, dial dialFunc) {
			deaf := s.deafEnd("127.0.0.1") // takes longer than soon
			ctx, cancel := context.WithTimeout(s.Context(), soon)
			defer cancel()
			begin(s, dial, deaf, ctx, net.Dialer{}).end()
		},
	}, {
		name:  "Timeout",
		shows: []string{`text=".*i/o timeout"`, `<deaf>`},
		play: func(s *stage, dial dialFunc) {
			begin(s, dial, s.deafEnd("127.0.0.1"), s.Context(), net.Dialer{Timeout: soon}).end()
		},
	}, {
		name:  "Deadline",
		shows: []string{`text=".*i/o timeout"`, `<deaf>`},
		play: func(s *stage, dial dialFunc) {
			deaf := s.deafEnd("127.0.0.1")
			begin(s, dial, deaf, s.Context(), net.Dialer{Deadline: time.Now().Add(soon)}).end()
		},
	}})
}

// A nameServer answers queries for every name with the same addresses.
type nameServer struct {
	v4, v6 []netip.Addr
}

// resolver returns a resolver that queries only ns.
func (ns nameServer) resolver(s *stage) *net.Resolver {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		s.Fatalf("a name server: %v", err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { ns.serve(conn) })
	s.Cleanup(func() {
		conn.Close()
		serving.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}
}

func (ns nameServer) serve(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer, err := ns.answer(buf[:n]); err == nil {
			conn.WriteTo(answer, from)
		}
	}
}

func (ns nameServer) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	if len(m.Questions) != 1 {
		return nil, errors.New("want one question")
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	header := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}
	switch q.Type {
	case dnsmessage.TypeA:
		for _, a := range ns.v4 {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		}
	case dnsmessage.TypeAAAA:
		for _, a := range ns.v6 {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}

// TestDiffDialNames dials a name with several addresses. Some of them are dead: they refuse
// connections or don't answer.
func TestDiffDialNames(t *testing.T) {
	if !testnet.HasIPv6() {
		t.Skip("this machine has no IPv6 loopback address")
	}
	addrs := func(all ...string) (list []netip.Addr) {
		for _, a := range all {
			list = append(list, netip.MustParseAddr(a))
		}
		return list
	}
	both := nameServer{v4: addrs("127.0.0.1"), v6: addrs("::1")}
	// dialName dials a name that ns resolves, on a port.
	dialName := func(s *stage, dial dialFunc, ns nameServer, d net.Dialer, network string, port int) {
		d.Resolver = ns.resolver(s)
		s.noteDial(dial(s.Context(), d, network, net.JoinHostPort("name.invalid", strconv.Itoa(port))))
	}
	port := func(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }
	playDialScripts(t, []dialScript{{
		name:  "both alive",
		shows: []string{`RemoteAddr: TCPAddr\(tcp \[::1\]:<ln>\)`},
		play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll("tcp", ":0")
			s.nameAddr(ln.Addr(), "ln")
			dialName(s, dial, both, net.Dialer{FallbackDelay: time.Hour}, "tcp", port(ln))
		},
	}, {
		name:  "tcp4 only",
		shows: []string{`RemoteAddr: TCPAddr\(tcp 127\.0\.0\.1:<ln>\)`},
		play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll("tcp", ":0")
			s.nameAddr(ln.Addr(), "ln")
			dialName(s, dial, both, net.Dialer{}, "tcp4", port(ln))
		},
	}, {
		name:  "IPv6 refused, at once the other",
		shows: []string{`RemoteAddr: TCPAddr\(tcp 127\.0\.0\.1:<ln>\)`},
		play: func(s *stage, dial dialFunc) {
			port, _ := s.halfDead()
			dialName(s, dial, both, net.Dialer{FallbackDelay: time.Hour}, "tcp", port)
		},
	}, {
		name:  "IPv6 refused, one after the other",
		shows: []string{`RemoteAddr: TCPAddr\(tcp 127\.0\.0\.1:<ln>\)`},
		play: func(s *stage, dial dialFunc) {
			port, _ := s.halfDead()
			dialName(s, dial, both, net.Dialer{FallbackDelay: -1}, "tcp", port)
		},
	}, {
		name:  "IPv6 silent, after a while the other",
		shows: []string{`RemoteAddr: TCPAddr\(tcp 127\.0\.0\.1:<ln>\)`},
		play: func(s *stage, dial dialFunc) {
			port, v6 := s.halfDead()
			s.deafen(v6)
			dialName(s, dial, both, net.Dialer{FallbackDelay: time.Millisecond}, "tcp", port)
		},
	}, {
		name:  "both refused",
		shows: []string{`ECONNREFUSED`, `\[::1\]:` + refusedPort},
		play: func(s *stage, dial dialFunc) {
			refused, _ := strconv.Atoi(refusedPort)
			dialName(s, dial, both, net.Dialer{}, "tcp", refused)
		},
	}, {
		name:  "the second of two of a kind",
		shows: []string{`RemoteAddr: TCPAddr\(tcp4? 127\.0\.0\.`},
		play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll("tcp4", "127.0.0.3:0")
			s.nameAddr(ln.Addr(), "ln")
			dialName(s, dial, nameServer{v4: addrs("127.0.0.2", "127.0.0.3")}, net.Dialer{Timeout: testnet.HangTimeout}, "tcp4", port(ln))
		},
	}, {
		name:  "no address",
		shows: []string{`DNSError`},
		play: func(s *stage, dial dialFunc) {
			dialName(s, dial, nameServer{}, net.Dialer{}, "tcp", 80)
		},
	}, {
		name:  "from an IPv4 address",
		shows: []string{`LocalAddr: TCPAddr\(tcp 127\.0\.0\.9:`, `RemoteAddr: TCPAddr\(tcp 127\.0\.0\.1:<ln>\)`},
		play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll("tcp", ":0")
			s.nameAddr(ln.Addr(), "ln")
			dialName(s, dial, both, net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}, "tcp", port(ln))
		},
	}})
}

// TestDiffDialHosts dials localhost, which usually has two addresses, with a listener on one of
// them.
func TestDiffDialHosts(t *testing.T) {
	var scripts []dialScript
	for _, c := range []struct{ listen, network, host string }{
		{"[::1]:0", "tcp", "localhost"},
		{":0", "tcp", "localhost"},
		{":0", "tcp4", "localhost"},
		{":0", "tcp6", "localhost"},
	} {
		if strings.Contains(c.listen, "::1") && !testnet.HasIPv6() {
			continue
		}
		scripts = append(scripts, dialScript{name: c.listen + " " + c.network, play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll("tcp", c.listen)
			s.nameAddr(ln.Addr(), "ln")
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			s.noteDial(dial(s.Context(), net.Dialer{FallbackDelay: time.Hour}, c.network, net.JoinHostPort(c.host, port)))
		}})
	}
	playDialScripts(t, scripts)
}
