package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// A dialFunc is DialContext of a Dialer with the given options.
type dialFunc func(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error)

// dialFuncs returns the dialFunc of each engine.
var dialFuncs = map[string]dialFunc{
	netDialing.name: func(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
		return d.DialContext(ctx, network, address)
	},
	percoreDialing.name: func(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
		return percoreDialer(d).DialContext(ctx, network, address)
	},
}

// percoreDialer returns percore's Dialer with the options of a net.Dialer.
func percoreDialer(d net.Dialer) *percore.Dialer {
	return &percore.Dialer{
		Timeout: d.Timeout, Deadline: d.Deadline, LocalAddr: d.LocalAddr, FallbackDelay: d.FallbackDelay,
		KeepAlive: d.KeepAlive, KeepAliveConfig: d.KeepAliveConfig, Resolver: d.Resolver,
		Control: d.Control, ControlContext: d.ControlContext,
	}
}

// A dialScript is a script that dials. Unlike the other scripts, it does not test a connection, but
// how dialing succeeds or fails.
type dialScript struct {
	name  string
	shows []string
	play  func(s *stage, dial dialFunc)
}

func playDialScripts(t *testing.T, scripts []dialScript) {
	for _, sc := range scripts {
		t.Run(strings.ReplaceAll(sc.name, "/", "|"), func(t *testing.T) {
			testnet.NoLeaks(t)
			compareEngines(t, script{name: sc.name, shows: sc.shows, play: func(s *stage) {
				sc.play(s, dialFuncs[s.engine.name])
			}}, testnet.TCP4, netDialing, percoreDialing)
		})
	}
}

// noteDial notes the result of dialing, and closes the connection.
func (s *stage) noteDial(c net.Conn, err error) {
	s.noteError("Dial", err)
	if c == nil || err != nil {
		s.note("conn: %v", c)
		return
	}
	s.nameAddr(c.LocalAddr(), "cli")
	if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
		s.names = append(s.names, fmt.Sprintf(":%d", a.Port), ":<cli>")
	}
	(&actor{Conn: c, stage: s, name: "conn"}).addrs()
	s.noteError("Close", c.Close())
}

// acceptAll listens, and closes every connection until the script ends.
func (s *stage) acceptAll(network, address string) net.Listener {
	ln, err := listenPlainTCP(network, address)
	if err != nil {
		s.Fatalf("listening on %s %s: %v", network, address, err)
	}
	s.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return ln
}

// refusedPort is a port without a listener: tcpmux (RFC 1078), which is not used any more.
const refusedPort = "1"

// dialCases are arguments of Dial, good and bad. "PORT" stands for the port of a listener on all
// addresses, "DIR" for a folder with sockets, "ABSTRACT" for the name of an abstract socket. "LL"
// stands for a link-local address of this machine.
var dialCases = []struct{ network, address string }{
	// Hosts.
	{"tcp", "127.0.0.1:PORT"},
	{"tcp", "127.0.0.2:PORT"},
	{"tcp", "[::1]:PORT"},
	{"tcp", "localhost:PORT"},
	{"tcp", ":PORT"},
	{"tcp", "0.0.0.0:PORT"},
	{"tcp", "[::]:PORT"},
	{"tcp", "[::ffff:127.0.0.1]:PORT"},
	{"tcp", "[::1%lo]:PORT"},
	{"tcp", "[LL]:PORT"},
	{"tcp6", "[LL]:PORT"},
	{"tcp", "[fe80::1%no-such-interface]:PORT"},
	{"tcp", "no-such-host.invalid:PORT"},
	// Families.
	{"tcp4", "127.0.0.1:PORT"},
	{"tcp4", "localhost:PORT"},
	{"tcp4", ":PORT"},
	{"tcp4", "[::1]:PORT"},
	{"tcp4", "[::ffff:127.0.0.1]:PORT"},
	{"tcp6", "[::1]:PORT"},
	{"tcp6", ":PORT"},
	{"tcp6", "127.0.0.1:PORT"},
	{"tcp6", "[::ffff:127.0.0.1]:PORT"},
	// Ports.
	{"tcp", "127.0.0.1:" + refusedPort},
	{"tcp", "[::1]:" + refusedPort},
	{"tcp", "localhost:" + refusedPort},
	{"tcp4", ":" + refusedPort},
	{"tcp", "127.0.0.1:0"},
	{"tcp", "127.0.0.1:"},
	{"tcp", "127.0.0.1:no-such-service"},
	{"tcp", "127.0.0.1:65536"},
	// Malformed addresses.
	{"tcp", "127.0.0.1"},
	{"tcp", "a:b:c"},
	// Unix sockets.
	{"unix", "DIR/stream"},
	{"unix", "DIR/dead"},
	{"unix", "DIR/datagram"},
	{"unix", "DIR/file"},
	{"unix", "DIR/missing"},
	{"unix", "DIR/missing/socket"},
	{"unix", "DIR"},
	{"unix", "DIR/" + strings.Repeat("n", 108)},
	{"unix", "DIR/stream\x00"},
	{"unix", ""},
	{"unix", "127.0.0.1:PORT"},
	// Other networks.
	{"udp", "127.0.0.1:PORT"},
	{"unixgram", "DIR/datagram"},
	{"unixgram", "DIR/stream"},
	{"unixpacket", "DIR/stream"},
	{"tcp5", "127.0.0.1:PORT"},
	{"no such network", "no such address"},
	// Linux's abstract sockets.
	{"unix", "@"},
	{"unix", "@percore-test-missing"},
	{"unix", "@ABSTRACT"},
	{"unix", "\x00ABSTRACT"},
}

// TestDiffDial dials every address.
func TestDiffDial(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs unix datagram sockets")
	}
	zoned := linkLocal()
	var scripts []dialScript
	for _, c := range dialCases {
		if strings.Contains(c.address, "LL") && zoned == "" {
			continue // this machine has no link-local address
		}
		if c.network == "unix" && c.address != "" && (c.address[0] == '@' || c.address[0] == 0) && runtime.GOOS != "linux" {
			continue
		}
		scripts = append(scripts, dialScript{name: fmt.Sprintf("%s %q", c.network, c.address), play: func(s *stage, dial dialFunc) {
			dir := s.furnish(testnet.ShortTempDir(s))
			ln := s.acceptAll("tcp", ":0")
			s.nameAddr(ln.Addr(), "port")
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			abstract := ""
			if strings.Contains(c.address, "ABSTRACT") {
				abstract = s.acceptAll(testnet.Address(s, testnet.Abstract)).Addr().String()[1:]
				s.names = append(s.names, abstract, "<abstract>")
			}
			address := strings.NewReplacer("DIR", dir, "PORT", port, "LL", zoned, "ABSTRACT", abstract).Replace(c.address)
			s.noteDial(dial(s.Context(), net.Dialer{Timeout: testnet.HangTimeout}, c.network, address))
		}})
	}
	playDialScripts(t, scripts)
}

// furnish fills a folder with everything that a unix address can name.
func (s *stage) furnish(dir string) string {
	s.names = append(s.names, dir, "<dir>")
	s.acceptAll("unix", filepath.Join(dir, "stream"))
	dead, err := net.Listen("unix", filepath.Join(dir, "dead"))
	if err != nil {
		s.Fatalf("listening: %v", err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	gram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "datagram"), Net: "unixgram"})
	if err != nil {
		s.Fatalf("listening: %v", err)
	}
	s.Cleanup(func() { gram.Close() })
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		s.Fatalf("%v", err)
	}
	return dir
}

// TestDiffDialLimits dials with limits that have passed, and with some that are far away.
func TestDiffDialLimits(t *testing.T) {
	type limited func(s *stage, dial dialFunc, network, address string)
	within := func(ctx context.Context, d net.Dialer) limited {
		return func(s *stage, dial dialFunc, network, address string) { s.noteDial(dial(ctx, d, network, address)) }
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	long, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	var scripts []dialScript
	for _, c := range []struct {
		name, shows string
		play        limited
	}{
		{"context cancelled before", `context\.Canceled`, within(canceled, net.Dialer{})},
		{"deadline of the context passed", `timeout=true`, within(expired, net.Dialer{})},
		{"Deadline passed", `timeout=true`, within(t.Context(), net.Dialer{Deadline: time.Unix(1, 0)})},
		{"negative Timeout", `timeout=true`, within(t.Context(), net.Dialer{Timeout: -1})},
		{"all limits far away", `Dial: nil`, within(long, net.Dialer{Timeout: time.Hour, Deadline: time.Now().Add(time.Hour)})},
		{"context cancelled after", `(?s)Dial: nil.*Read\(1\): 0 "" io\.EOF`, func(s *stage, dial dialFunc, network, address string) {
			ctx, cancel := context.WithCancel(s.Context())
			c, err := dial(ctx, net.Dialer{Timeout: time.Hour}, network, address)
			cancel()
			s.noteError("Dial", err)
			if err == nil {
				cli := &actor{Conn: c, stage: s, name: "conn"}
				cli.awaitPeerClosed()
				cli.read(1)
				cli.close()
			}
		}},
		{"no context", `panic: nil context`, func(s *stage, dial dialFunc, network, address string) {
			defer func() { s.note("panic: %v", recover()) }()
			s.noteDial(dial(nil, net.Dialer{}, network, address)) //nolint:staticcheck // its result is the point
		}},
	} {
		for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
			scripts = append(scripts, dialScript{name: c.name + ", " + string(kind), shows: []string{c.shows}, play: func(s *stage, dial dialFunc) {
				ln := s.acceptAll(testnet.Address(s, kind))
				s.nameAddr(ln.Addr(), "ln")
				c.play(s, dial, ln.Addr().Network(), ln.Addr().String())
			}})
		}
	}
	playDialScripts(t, scripts)
}

// TestDiffDialLocal dials from a given address.
func TestDiffDialLocal(t *testing.T) {
	tcp := func(ip string, port int) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	// from returns a script that dials a listener of the given kind from an address.
	from := func(name string, kind testnet.Kind, shows string, local func(s *stage, ln net.Listener) net.Addr) dialScript {
		return dialScript{name: name, shows: []string{shows}, play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll(testnet.Address(s, kind))
			s.nameAddr(ln.Addr(), "ln")
			addr := local(s, ln)
			s.note("from %s", describeAddr(addr))
			s.noteDial(dial(s.Context(), net.Dialer{LocalAddr: addr}, ln.Addr().Network(), ln.Addr().String()))
		}}
	}
	unix := func(s *stage, path string) net.Addr {
		dir := testnet.ShortTempDir(s)
		s.names = append(s.names, dir, "<local dir>")
		return &net.UnixAddr{Name: filepath.Join(dir, path), Net: "unix"}
	}
	playDialScripts(t, []dialScript{
		from("an address of this machine", testnet.TCP4, `Dial: nil`, func(*stage, net.Listener) net.Addr { return tcp("127.0.0.1", 0) }),
		from("a port in use", testnet.TCP4, `EADDRINUSE`, func(s *stage, ln net.Listener) net.Addr {
			other := s.acceptAll("tcp4", "127.0.0.1:0")
			s.nameAddr(other.Addr(), "other")
			return other.Addr()
		}),
		from("an address of another machine", testnet.TCP4, `EADDRNOTAVAIL`, func(*stage, net.Listener) net.Addr { return tcp("198.51.100.7", 0) }),
		from("an address of another family", testnet.TCP4, `no suitable address`, func(*stage, net.Listener) net.Addr { return tcp("::1", 0) }),
		from("an address of another type", testnet.TCP4, `mismatched local address type`, func(*stage, net.Listener) net.Addr {
			return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
		}),
		from("a unix address", testnet.TCP4, `mismatched local address type`, func(s *stage, _ net.Listener) net.Addr { return unix(s, "x") }),
		from("the wildcard", testnet.TCP4, `Dial: nil`, func(*stage, net.Listener) net.Addr { return &net.TCPAddr{} }),
		from("unix: a new path", testnet.Unix, `UnixAddr\(unix <local dir>/new\)`, func(s *stage, _ net.Listener) net.Addr { return unix(s, "new") }),
		from("unix: no folder", testnet.Unix, `ENOENT|no such file`, func(s *stage, _ net.Listener) net.Addr { return unix(s, "missing/new") }),
		from("unix: a path in use", testnet.Unix, `EADDRINUSE`, func(_ *stage, ln net.Listener) net.Addr { return ln.Addr() }),
		from("unix: a TCP address", testnet.Unix, `mismatched local address type`, func(*stage, net.Listener) net.Addr { return tcp("127.0.0.1", 0) }),
		from("unix: no name", testnet.Unix, `Dial: nil`, func(*stage, net.Listener) net.Addr { return &net.UnixAddr{Net: "unix"} }),
	})
}

// TestDiffDialHooks watches the calls of Control, ControlContext and a trace, and makes them fail.
func TestDiffDialHooks(t *testing.T) {
	playDialScripts(t, []dialScript{{
		name:  "Control fails",
		shows: []string{`Control tcp4 127\.0\.0\.1:<ln>`, `text=".*: not this one"`},
		play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll("tcp4", "127.0.0.1:0")
			s.nameAddr(ln.Addr(), "ln")
			s.noteDial(dial(s.Context(), net.Dialer{Control: func(network, address string, _ syscall.RawConn) error {
				s.note("Control %s %s", network, address)
				return errors.New("not this one")
			}}, "tcp", ln.Addr().String()))
		},
	}, {
		name:  "ControlContext fails, Control is not asked",
		shows: []string{`ControlContext unix <ln>`, `text=".*: not this one"`},
		play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll(testnet.Address(s, testnet.Unix))
			s.nameAddr(ln.Addr(), "ln")
			s.noteDial(dial(s.Context(), net.Dialer{
				Control: func(string, string, syscall.RawConn) error { s.note("Control"); return nil },
				ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
					s.note("ControlContext %s %s", network, address)
					return errors.New("not this one")
				},
			}, "unix", ln.Addr().String()))
		},
	}, {
		name:  "Control cancels",
		shows: []string{`Control`, `context\.Canceled`},
		play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll("tcp4", "127.0.0.1:0")
			s.nameAddr(ln.Addr(), "ln")
			ctx, cancel := context.WithCancel(s.Context())
			s.noteDial(dial(ctx, net.Dialer{Control: func(string, string, syscall.RawConn) error {
				s.note("Control")
				cancel()
				return ctx.Err()
			}}, "tcp", ln.Addr().String()))
		},
	}, {
		name:  "a trace",
		shows: []string{`ConnectStart tcp 127\.0\.0\.1:<ln>`, `ConnectDone tcp 127\.0\.0\.1:<ln>: nil`},
		play: func(s *stage, dial dialFunc) {
			ln := s.acceptAll("tcp4", "127.0.0.1:0")
			s.nameAddr(ln.Addr(), "ln")
			for _, address := range []string{ln.Addr().String(), "127.0.0.1:" + refusedPort} {
				ctx := httptrace.WithClientTrace(s.Context(), &httptrace.ClientTrace{
					ConnectStart: func(network, address string) { s.note("ConnectStart %s %s", network, address) },
					ConnectDone: func(network, address string, err error) {
						s.note("ConnectDone %s %s: %s", network, address, describeError(err))
					},
				})
				s.noteDial(dial(ctx, net.Dialer{}, "tcp", address))
			}
		},
	}, {
		name:  "a resolver that fails",
		shows: []string{`DNSError`, `out of order`},
		play: func(s *stage, dial dialFunc) {
			s.noteDial(dial(s.Context(), net.Dialer{Resolver: &net.Resolver{
				PreferGo: true,
				Dial:     func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("out of order") },
			}}, "tcp", "some.host.invalid:80"))
		},
	}})
}
