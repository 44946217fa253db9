package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// listenCases are arguments of Listen, good and bad. "DIR" stands for a temporary directory, "LL" for a
// link-local address of this machine, "PID" for the number of this process.
var listenCases = []struct{ network, address string }{
	// Hosts.
	{"tcp", "127.0.0.1:0"},
	{"tcp", "[::1]:0"},
	{"tcp", "localhost:0"},
	{"tcp", ":0"},
	{"tcp", ""},
	{"tcp", "0.0.0.0:0"},
	{"tcp", "[::]:0"},
	{"tcp", "[::ffff:127.0.0.1]:0"},
	{"tcp", "[::ffff:0.0.0.0]:0"},
	{"tcp", "[127.0.0.1]:0"},
	{"tcp", "127.0.0.2:0"},
	{"tcp", "no-such-host.invalid:0"},
	{"tcp", "198.51.100.7:0"}, // reserved for documentation: not ours
	{"tcp", "224.0.0.1:0"},
	// Ports.
	{"tcp", "127.0.0.1:"},
	{"tcp", ":"},
	{"tcp", "127.0.0.1:http"},
	{"tcp", "127.0.0.1:81"}, // privileged
	{"tcp", "127.0.0.1:no-such-service"},
	{"tcp", "127.0.0.1:65536"},
	{"tcp", "127.0.0.1:00"},
	// Malformed addresses.
	{"tcp", "127.0.0.1"},
	{"tcp", "a:b:c"},
	// Zones.
	{"tcp", "[::1%lo]:0"},
	{"tcp", "[LL]:0"},
	{"tcp6", "[LL]:0"},
	{"tcp", "[fe80::1%no-such-interface]:0"},
	{"tcp", "[fe80::1]:0"},
	// Families.
	{"tcp4", "127.0.0.1:0"},
	{"tcp4", ":0"},
	{"tcp4", ""},
	{"tcp4", "localhost:0"},
	{"tcp4", "[::1]:0"},
	{"tcp4", "[::]:0"},
	{"tcp4", "[::ffff:127.0.0.1]:0"},
	{"tcp6", "[::1]:0"},
	{"tcp6", ":0"},
	{"tcp6", ""},
	{"tcp6", "127.0.0.1:0"},
	{"tcp6", "0.0.0.0:0"},
	{"tcp6", "[::ffff:127.0.0.1]:0"},
	// Unix paths.
	{"unix", "DIR/socket"},
	{"unix", "DIR/no-such-directory/socket"},
	{"unix", "DIR"},
	{"unix", "DIR/" + strings.Repeat("n", 108)},
	{"unix", "/proc/percore-test"},
	{"unix", ""},
	{"unix", "@"},
	{"unix", "@percore-test-PID"},
	{"unix", "\x00percore-test-PID"},
	{"unix", "DIR/with\x00zero"},
	{"unixpacket", "DIR/socket"},
	// Networks.
	{"tcp5", "127.0.0.1:0"},
	{"udp", "127.0.0.1:0"},
	{"no such network", "no such address"},
}

// linkLocal returns a link-local address with its zone, or "".
func linkLocal() string {
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() {
				return n.IP.String() + "%" + i.Name
			}
		}
	}
	return ""
}

// TestDiffListen listens on every address, and connects if that succeeds.
func TestDiffListen(t *testing.T) {
	zoned := linkLocal()
	for _, c := range listenCases {
		if c.network == "unix" && runtime.GOOS != "linux" && (c.address == "" || c.address[0] == '@' || c.address[0] == 0) {
			continue
		}
		name := strings.ReplaceAll(fmt.Sprintf("%s %q", c.network, c.address), "/", "|")
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			if strings.Contains(c.address, "LL") && zoned == "" {
				t.Skip("this machine has no link-local address")
			}
			compareEngines(t, script{play: func(s *stage) {
				dir := testnet.ShortTempDir(s)
				s.names = append(s.names, dir, "<dir>")
				address := strings.NewReplacer("DIR", dir, "LL", zoned, "PID", strconv.Itoa(os.Getpid())).Replace(c.address)
				ln, err := s.engine.listen(c.network, address)
				s.noteError("Listen", err)
				if err != nil {
					s.note("listener: %v", ln)
					return
				}
				defer ln.Close()
				s.nameAddr(ln.Addr(), "ln")
				s.note("Addr: %s", describeAddr(ln.Addr()))
				s.noteVisit(ln)
				s.noteError("Close", ln.Close())
			}}, testnet.TCP4, netEngine, percoreEngine)
		})
	}
}

// noteVisit connects to a listener on its own address, if the kernel allows it, and notes the
// properties of the accepted connection.
func (s *stage) noteVisit(ln net.Listener) {
	ln.(deadliner).SetDeadline(time.Now().Add(testnet.HangTimeout))
	accepted := goAccept(ln, 1)
	c, err := net.DialTimeout(ln.Addr().Network(), ln.Addr().String(), testnet.HangTimeout)
	if err != nil {
		s.noteError("dialing", err)
		ln.Close()
		<-accepted
		return
	}
	defer c.Close()
	s.nameAddr(c.LocalAddr(), "cli")
	outcome := testnet.Receive(s, "Accept", accepted)
	s.noteError("Accept", outcome.err)
	if outcome.err != nil {
		return
	}
	srv := &actor{Conn: outcome.conn, stage: s, name: "srv"}
	defer outcome.conn.Close()
	srv.addrs()
	srv.deadline("SetReadDeadline", longAgo)
	srv.read(1)
}

// TestDiffListenBusy listens on addresses where net, or the engine itself, already listens.
func TestDiffListenBusy(t *testing.T) {
	playScripts(t, []script{{
		name:  "the same address",
		shows: []string{`OpError\{"listen".*EADDRINUSE`},
		play: func(s *stage) {
			for _, holder := range []testnet.ListenFunc{net.Listen, s.engine.listen} {
				held := testnet.Listen(s, holder, s.kind)
				s.nameAddr(held.Addr(), "held")
				_, err := s.engine.listen(held.Addr().Network(), held.Addr().String())
				s.noteError("Listen", err)
			}
		},
	}, {
		name:  "any address against one, one against any",
		kinds: onTCP,
		shows: []string{`OpError\{"listen".*EADDRINUSE`},
		play: func(s *stage) {
			one, any := "127.0.0.1", ":"
			if s.kind == testnet.TCP6 {
				one = "[::1]"
			}
			for _, holder := range []testnet.ListenFunc{listenPlainTCP, s.engine.listen} {
				for _, hosts := range [][2]string{{one, ""}, {"", one}} {
					held, err := holder("tcp", hosts[0]+any+"0")
					if err != nil {
						s.Fatalf("listening: %v", err)
					}
					s.nameAddr(held.Addr(), "held")
					_, port, _ := net.SplitHostPort(held.Addr().String())
					_, err = s.engine.listen("tcp", hosts[1]+any+port)
					s.noteError("Listen", err)
					held.Close()
				}
			}
		},
	}, {
		name:  "one host beside another",
		kinds: []testnet.Kind{testnet.TCP4},
		shows: []string{`Listen: nil`},
		play: func(s *stage) {
			held := s.listen()
			_, port, _ := net.SplitHostPort(held.Addr().String())
			ln, err := s.engine.listen("tcp4", "127.0.0.2:"+port)
			s.noteError("Listen", err)
			if err == nil {
				s.note("Addr: %s", describeAddr(ln.Addr()))
				ln.Close()
			}
		},
	}, {
		name:  "IPv4 beside IPv6",
		kinds: []testnet.Kind{testnet.TCP6},
		shows: []string{`Listen: nil`},
		play: func(s *stage) {
			// The kernel chose a port that is free on IPv6. Another process may have the port on
			// IPv4, but not repeatedly.
			var held, ln net.Listener
			var err error
			for range 20 {
				if held, err = s.engine.listen("tcp6", ":0"); err != nil {
					s.Fatalf("listening: %v", err)
				}
				defer held.Close()
				_, port, _ := net.SplitHostPort(held.Addr().String())
				if ln, err = s.engine.listen("tcp4", ":"+port); !errors.Is(err, syscall.EADDRINUSE) {
					break
				}
			}
			s.nameAddr(held.Addr(), "held")
			s.noteError("Listen", err)
			if err == nil {
				s.note("Addr: %s", describeAddr(ln.Addr()))
				ln.Close()
			}
		},
	}, {
		name:  "a stale file",
		kinds: []testnet.Kind{testnet.Unix},
		shows: []string{`OpError\{"listen".*EADDRINUSE`},
		play: func(s *stage) {
			f := testnet.TempFile(s, nil)
			s.names = append(s.names, filepath.Dir(f.Name()), "<dir>")
			_, err := s.engine.listen("unix", f.Name())
			s.noteError("Listen", err)
		},
	}})
}

func TestDiffAccept(t *testing.T) {
	accept := func(s *stage, ln net.Listener) {
		c, err := ln.Accept()
		s.note("Accept: %t %s", c != nil, describeError(err))
		if c != nil {
			c.Close()
		}
	}
	beginAccept := func(s *stage, ln net.Listener) *pending {
		return s.begin("Accept", func() string {
			c, err := ln.Accept()
			if c != nil {
				c.Close()
			}
			return fmt.Sprintf("Accept: %t %s", c != nil, describeError(err))
		})
	}
	playScripts(t, []script{{
		name:  "after Close",
		shows: []string{`Accept: false OpError\{"accept".*net\.ErrClosed`, `Close: OpError\{"close".*net\.ErrClosed`, `SetDeadline: .*closed`},
		play: func(s *stage) {
			ln := s.listen()
			s.noteError("Close", ln.Close())
			accept(s, ln)
			s.noteError("Close", ln.Close())
			s.noteError("SetDeadline", ln.(deadliner).SetDeadline(later()))
			s.note("Addr: %s", describeAddr(ln.Addr()))
		},
	}, {
		name:  "woken by Close",
		shows: []string{`blocked Accept: false OpError\{"accept".*net\.ErrClosed`},
		play: func(s *stage) {
			ln := s.listen()
			first, second := beginAccept(s, ln), beginAccept(s, ln)
			first.stillBlocked()
			s.noteError("Close", ln.Close())
			first.end()
			second.end()
		},
	}, {
		name:  "with a deadline in the past",
		shows: []string{`Accept: false OpError\{"accept".*os\.ErrDeadlineExceeded.*timeout=true`, `Accept: true nil`},
		play: func(s *stage) {
			ln := s.listen()
			s.noteError("SetDeadline", ln.(deadliner).SetDeadline(longAgo))
			accept(s, ln)
			testnet.Dial(s, ln)
			letBlock()
			accept(s, ln)
			s.noteError("SetDeadline", ln.(deadliner).SetDeadline(time.Time{}))
			accept(s, ln)
		},
	}, {
		name:  "with a deadline in the future",
		shows: []string{`Accept: false OpError\{"accept".*os\.ErrDeadlineExceeded.*timeout=true`, `early: false`},
		play: func(s *stage) {
			ln := s.listen()
			deadline := soon()
			s.noteError("SetDeadline", ln.(deadliner).SetDeadline(deadline))
			accept(s, ln)
			s.note("early: %t", time.Now().Before(deadline))
			accept(s, ln)
			s.noteError("SetDeadline", ln.(deadliner).SetDeadline(later()))
			testnet.Dial(s, ln)
			accept(s, ln)
		},
	}, {
		name:  "with a deadline set while blocked",
		shows: []string{`blocked Accept: false OpError\{"accept".*os\.ErrDeadlineExceeded`},
		play: func(s *stage) {
			ln := s.listen()
			first, second := beginAccept(s, ln), beginAccept(s, ln)
			s.noteError("SetDeadline", ln.(deadliner).SetDeadline(longAgo))
			first.end()
			second.end()
			s.noteError("SetDeadline", ln.(deadliner).SetDeadline(later()))
			first = beginAccept(s, ln)
			s.noteError("SetDeadline", ln.(deadliner).SetDeadline(soon()))
			first.end()
		},
	}, {
		name:  "with a deadline moved later while blocked",
		shows: []string{`Accept: blocked: true`, `blocked Accept: true nil`},
		play: func(s *stage) {
			s.moveInTime(func(deadline time.Time, moved func() bool) {
				ln := s.listen()
				s.noteError("SetDeadline", ln.(deadliner).SetDeadline(deadline))
				blocked := beginAccept(s, ln)
				s.noteError("SetDeadline", ln.(deadliner).SetDeadline(later()))
				if moved() {
					blocked.stillBlocked()
					testnet.Dial(s, ln)
					blocked.end()
				}
			})
		},
	}, {
		name:  "of a peer that has gone already",
		shows: []string{`Accept: true nil`, `srv.Read\(20\): 5 "hello" nil`},
		play: func(s *stage) {
			ln := s.listen()
			cli := &actor{Conn: testnet.Dial(s, ln), stage: s, name: "cli"}
			cli.write("hello")
			cli.close()
			letBlock()
			c, err := ln.Accept()
			s.note("Accept: %t %s", c != nil, describeError(err))
			srv := &actor{Conn: c, stage: s, name: "srv"}
			srv.read(20)
			srv.read(20)
			srv.close()
		},
	}, {
		name:  "of a peer that has reset already",
		kinds: onTCP,
		shows: []string{`Accept: true nil`, `srv.Read\(20\): 0 "" OpError\{"read".*ECONNRESET`},
		play: func(s *stage) {
			ln := s.listen()
			c := testnet.Dial(s, ln)
			s.nameAddr(c.LocalAddr(), "cli")
			cli := &actor{Conn: c, stage: s, name: "cli"}
			cli.reset()
			letBlock()
			c, err := ln.Accept()
			s.note("Accept: %t %s", c != nil, describeError(err))
			srv := &actor{Conn: c, stage: s, name: "srv"}
			srv.addrs()
			srv.read(20)
			srv.close()
		},
	}, {
		name:  "of connections in the order they were made, by one socket",
		kinds: []testnet.Kind{testnet.Unix, testnet.Abstract}, // TCP has one socket per loop
		shows: []string{`"first" nil`, `"second" nil`, `"third" nil`},
		play: func(s *stage) {
			ln := s.listen()
			for _, greeting := range []string{"first", "second", "third"} {
				cli := &actor{Conn: testnet.Dial(s, ln), stage: s, name: "cli"}
				cli.write(greeting)
				cli.close()
			}
			for range 3 {
				c, err := ln.Accept()
				if err != nil {
					s.Fatalf("accepting: %v", err)
				}
				srv := &actor{Conn: c, stage: s, name: "srv"}
				srv.readAll()
				srv.close()
			}
		},
	}})
}

// TestDiffListenConfig listens with the options of net.ListenConfig.
func TestDiffListenConfig(t *testing.T) {
	// pairWith makes a connection through a listener with the configuration.
	pairWith := func(s *stage, config net.ListenConfig) (srv, cli *actor) {
		listen := func(network, address string) (net.Listener, error) {
			return s.engine.configured(context.Background(), config, network, address)
		}
		ln := testnet.Listen(s, listen, s.kind)
		s.nameAddr(ln.Addr(), "ln")
		return s.connect(ln)
	}
	playScripts(t, []script{{
		name:  "keep-alive",
		kinds: onTCP,
		shows: []string{`SO_KEEPALIVE=0`, `SO_KEEPALIVE=1`},
		play: func(s *stage) {
			for _, config := range []net.ListenConfig{
				{},
				{KeepAlive: -1},
				{KeepAlive: 42 * time.Second},
				{KeepAlive: 1500 * time.Millisecond},
				{KeepAlive: -1, KeepAliveConfig: net.KeepAliveConfig{Enable: true}},
				{KeepAlive: 42 * time.Second, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second}},
				{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 6 * time.Second, Count: 7}},
				{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}},
				{KeepAliveConfig: net.KeepAliveConfig{Enable: false, Idle: 5 * time.Second}},
				{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Hour * 24 * 365}}, // refused
			} {
				srv, cli := pairWith(s, config)
				srv.noteOptions(fmt.Sprintf("with %v, %+v", config.KeepAlive, config.KeepAliveConfig))
				srv.close()
				cli.close()
			}
		},
	}, {
		name:  "control",
		shows: []string{`control of "(tcp4|tcp6|unix)" ".+": nil`},
		play: func(s *stage) {
			// percore has several sockets and calls Control for each. Its result for the first must
			// equal net's result for its only one.
			network, address := testnet.Address(s, s.kind)
			s.names = append(s.names, address, "<address>")
			called := false
			config := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
				if !called {
					called = true
					s.note("control of %q %q: %s", network, address, describeError(c.Control(func(uintptr) {})))
				}
				return nil
			}}
			ln, err := s.engine.configured(context.Background(), config, network, address)
			s.noteError("Listen", err)
			if err == nil {
				ln.Close()
			}
		},
	}, {
		name:  "control that fails",
		shows: []string{`Listen: OpError\{"listen".*source failed`, `again: nil`},
		play: func(s *stage) {
			network, address := testnet.Address(s, s.kind)
			s.names = append(s.names, address, "<address>")
			config := net.ListenConfig{Control: func(string, string, syscall.RawConn) error { return errSource }}
			_, err := s.engine.configured(context.Background(), config, network, address)
			s.noteError("Listen", err)
			ln, err := s.engine.listen(network, address)
			s.noteError("again", err)
			if err == nil {
				ln.Close()
			}
		},
	}, {
		name:  "context",
		kinds: []testnet.Kind{testnet.TCP4},
		shows: []string{`name, canceled: OpError.*operation was canceled|name, canceled: .*context.Canceled`, `literal, canceled: nil`},
		play: func(s *stage) {
			canceled, cancel := context.WithCancel(context.Background())
			cancel()
			expired, cancel := context.WithDeadline(context.Background(), longAgo)
			defer cancel()
			for _, c := range []struct {
				what    string
				ctx     context.Context
				address string
			}{
				{"name, canceled", canceled, "localhost.invalid:0"},
				{"name, expired", expired, "localhost.invalid:0"},
				{"literal, canceled", canceled, "127.0.0.1:0"},
				{"literal, expired", expired, "127.0.0.1:0"},
			} {
				ln, err := s.engine.configured(c.ctx, net.ListenConfig{}, "tcp", c.address)
				// The answer of a quick name server may come before package net looks at the context.
				dns := new(net.DNSError)
				for tries := 0; tries < 1000 && errors.As(err, &dns) && dns.IsNotFound; tries++ {
					ln, err = s.engine.configured(c.ctx, net.ListenConfig{}, "tcp", c.address)
				}
				s.noteError(c.what, err)
				if err == nil {
					ln.Close()
				}
			}
		},
	}})
}

// TestDiffFileListener takes over sockets that net made, like a service that inherits its sockets.
func TestDiffFileListener(t *testing.T) {
	// inherit returns the file of a new listener, which it closes.
	inherit := func(s *stage) *os.File {
		ln := testnet.Listen(s, listenPlainTCP, s.kind)
		s.nameAddr(ln.Addr(), "ln")
		if u, ok := ln.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		f, err := ln.(filer).File()
		if err != nil {
			s.Fatalf("File: %v", err)
		}
		s.Cleanup(func() { f.Close() })
		ln.Close()
		return f
	}
	playScripts(t, []script{{
		name:  "of a socket",
		shows: []string{`Addr: \w+Addr\(`, `srv.Read\(5\): 5 "hello" nil`, `Accept: .*net\.ErrClosed`, `accepting again`},
		play: func(s *stage) {
			f := inherit(s)
			for _, what := range []string{"accepting", "accepting again, after Close"} {
				ln, err := s.engine.fileListener(f)
				s.noteError("FileListener", err)
				if err != nil {
					return
				}
				s.note("%s at Addr: %s", what, describeAddr(ln.Addr()))
				srv, cli := s.connect(ln)
				srv.noteOptions("accepted")
				cli.write("hello")
				srv.awaitReadable(5)
				srv.read(5)
				srv.addrs()
				cli.close()
				srv.read(5)
				srv.close()
				s.noteError("Close", ln.Close())
				_, err = ln.Accept()
				s.noteError("Accept", err)
			}
		},
	}, {
		name:  "closes no file of a unix socket",
		kinds: []testnet.Kind{testnet.Unix},
		shows: []string{`file exists: true`},
		play: func(s *stage) {
			f := inherit(s)
			ln, err := s.engine.fileListener(f)
			if err != nil {
				s.Fatalf("FileListener: %v", err)
			}
			path := ln.Addr().String()
			s.noteError("Close", ln.Close())
			_, err = os.Lstat(path)
			s.note("file exists: %t", err == nil)
			os.Remove(path)
		},
	}, {
		// A connection's socket is missing here: net takes it and fails on each Accept, percore
		// refuses it with the same error.
		name:  "of what is no stream socket",
		kinds: []testnet.Kind{testnet.TCP4},
		shows: []string{`regular file: .*ENOTSOCK|regular file: .*not a socket|regular file: .*socket operation on non-socket`},
		play: func(s *stage) {
			try := func(what string, f *os.File) {
				ln, err := s.engine.fileListener(f)
				s.noteError(what, err)
				if err == nil {
					ln.Close()
				}
			}
			regular := testnet.TempFile(s, nil)
			s.names = append(s.names, regular.Name(), "<file>")
			try("regular file", regular)
			regular.Close()
			try("closed file", regular)

			packets, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				s.Fatalf("ListenPacket: %v", err)
			}
			defer packets.Close()
			s.nameUDP(packets.LocalAddr())
			datagrams, err := packets.(filer).File()
			if err != nil {
				s.Fatalf("File: %v", err)
			}
			defer datagrams.Close()
			try("datagram socket", datagrams)
		},
	}})
}

// nameUDP hides the port of a UDP address.
func (s *stage) nameUDP(addr net.Addr) {
	s.names = append(s.names, fmt.Sprintf(":%d", addr.(*net.UDPAddr).Port), ":<udp>")
}
