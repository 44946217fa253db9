package conformance

import (
	"fmt"
	"go/token"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestDiffReadWrite(t *testing.T) {
	playScripts(t, []script{{
		name: "much data both ways at once",
		play: func(s *stage) {
			srv, cli := s.pair()
			fromSrv, fromCli := srv.beginWrite(pattern(muchData)), cli.beginWrite(pattern(muchData/2))
			fromSrv.stillBlocked()
			fromCli.stillBlocked()
			atCli := s.begin("cli reading", func() string {
				n, err := io.CopyN(io.Discard, cli.Conn, muchData)
				return describeCopy("cli read", n, err)
			})
			atSrv := s.begin("srv reading", func() string {
				n, err := io.CopyN(io.Discard, struct{ io.Reader }{srv.Conn}, muchData/2)
				return describeCopy("srv read", n, err)
			})
			fromSrv.end()
			fromCli.end()
			atCli.end()
			atSrv.end()
		},
	}})
}

func TestDiffReset(t *testing.T) {
	playScripts(t, []script{{
		name:  "wakes a blocked write",
		kinds: onTCP,
		shows: []string{`Write\(much\): some: true OpError\{"write".*ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginCutWrite(cli)
			blocked.stillBlocked()
			cli.reset()
			blocked.end()
			srv.write("x")
		},
	}, {
		name:  "wakes a blocked read and a blocked write",
		kinds: onTCP,
		play: func(s *stage) {
			srv, cli := s.pair()
			// On every engine, the scheduler decides which of them gets the reset and which finds
			// the connection ended.
			read := s.begin("srv.Read", func() string {
				n, err := srv.Conn.Read(make([]byte, 8))
				return fmt.Sprintf("srv.Read: %d, ended: %t", n, err != nil)
			})
			write := s.begin("srv.Write", func() string {
				n, err := srv.Conn.Write(pattern(muchData))
				return fmt.Sprintf("srv.Write: some: %t, ended: %t", n > 0, err != nil)
			})
			read.stillBlocked()
			write.stillBlocked()
			cli.reset()
			read.end()
			write.end()
		},
	}, {
		name:  "not from the server, by SetLinger(1) or SetLinger(-1)",
		kinds: onTCP,
		shows: []string{`cli.ReadAll: "farewell" nil`},
		play: func(s *stage) {
			for _, seconds := range []int{1, -1} {
				srv, cli := s.pair()
				srv.linger(seconds)
				srv.write("farewell")
				srv.close()
				cli.readAll()
			}
		},
	}})
}

func TestDiffHalfClose(t *testing.T) {
	playScripts(t, []script{{
		name:  "both sides, then the other methods",
		shows: []string{`cli.Read\(1\): 0 "" io.EOF`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.closeWrite()
			cli.read(1)
			cli.closeWrite()
			srv.awaitPeerClosed()
			srv.read(1)
			srv.closeRead()
			srv.closeWrite()
			srv.deadline("SetDeadline", time.Now().Add(time.Hour))
			srv.addrs()
			srv.close()
		},
	}, {
		name:  "CloseWrite wakes a blocked write",
		kinds: onTCP, // the kernel does not wake writers of unix sockets then
		shows: []string{`Write\(much\): some: true OpError\{"write".*EPIPE`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginCutWrite(cli)
			blocked.stillBlocked()
			srv.closeWrite()
			blocked.end()
		},
	}, {
		name:  "CloseWrite sends what was written before",
		shows: []string{`cli.ReadAll: 100000 bytes`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.writeBytes(pattern(100_000))
			srv.closeWrite()
			cli.readAll()
			cli.write("and back")
			srv.awaitReadable(8)
			srv.read(9)
		},
	}, {
		name:  "the client's end wakes a blocked read while the server writes on",
		shows: []string{`blocked srv.Read\(8\): 0 "" io\.EOF`, `cli.ReadAll: 100000 bytes`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginRead(8)
			cli.closeWrite()
			blocked.end()
			reading := cli.beginReadAll()
			srv.writeBytes(pattern(100_000))
			srv.close()
			reading.end()
		},
	}})
}

func TestDiffClose(t *testing.T) {
	playScripts(t, onTwoKinds([]script{{
		name:  "wakes blocked reads",
		shows: []string{`blocked srv.Read\(8\): 0 "" OpError\{"read".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, cli := s.pair()
			first, second, third := srv.beginRead(8), srv.beginRead(8), srv.beginRead(8)
			first.stillBlocked()
			srv.close()
			first.end()
			second.end()
			third.end()
			cli.read(1)
		},
	}, {
		name:  "wakes blocked writes",
		shows: []string{`Write\(much\): some: true OpError\{"write".*net\.ErrClosed`, `turn"\): 0 OpError\{"write".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, cli := s.pair()
			first := srv.beginCutWrite(cli)
			second := srv.beginWrite([]byte("never gets its turn"))
			first.stillBlocked()
			srv.close()
			first.end()
			second.end()
		},
	}}))
}

func TestDiffAddrs(t *testing.T) {
	playScripts(t, []script{{
		name:  "of a dual-stack listener",
		kinds: []testnet.Kind{testnet.TCP6},
		shows: []string{`127\.0\.0\.1:<cli4>`, `\[::1\]:<cli6>`},
		play: func(s *stage) {
			ln, err := s.engine.listen("tcp", ":0")
			if err != nil {
				s.Fatalf("listening: %v", err)
			}
			defer ln.Close()
			s.nameAddr(ln.Addr(), "ln")
			s.note("ln.Addr: %s", describeAddr(ln.Addr()))
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			for name, host := range map[string]string{"cli4": "127.0.0.1", "cli6": "::1"} {
				accepted := goAccept(ln, 1)
				c, err := net.Dial("tcp", net.JoinHostPort(host, port))
				if err != nil {
					s.Fatalf("dialing %s: %v", host, err)
				}
				s.nameAddr(c.LocalAddr(), name)
				conn := testnet.Receive(s, "Accept", accepted).conn
				srv := &actor{Conn: conn, stage: s, name: "srv"}
				srv.addrs()
				srv.close()
				c.Close()
			}
			// The order of the map differs from run to run.
			s.sortLines()
		},
	}, {
		name:  "of a unix client with a name",
		kinds: []testnet.Kind{testnet.Unix, testnet.Abstract},
		shows: []string{`srv.RemoteAddr: UnixAddr\(unix <named>\)`, `OpError\{"read" "unix" UnixAddr\(unix <ln>\) UnixAddr\(unix <named>\)\}`},
		play: func(s *stage) {
			ln := s.listen()
			_, name := testnet.Address(s, s.kind)
			local := &net.UnixAddr{Net: "unix", Name: name}
			s.nameAddr(local, "named")
			accepted := goAccept(ln, 1)
			c, err := net.DialUnix("unix", local, ln.Addr().(*net.UnixAddr))
			if err != nil {
				s.Fatalf("dialing: %v", err)
			}
			defer c.Close()
			srv := &actor{Conn: testnet.Receive(s, "Accept", accepted).conn, stage: s, name: "srv"}
			srv.addrs()
			srv.close()
			srv.read(1)
			srv.addrs()
		},
	}})
}

// TestDiffUnusableValues calls methods on zero connections and listeners, which
// net answers with EINVAL rather than a panic.
func TestDiffUnusableValues(t *testing.T) {
	playScripts(t, []script{{
		name:  "connections",
		kinds: []testnet.Kind{testnet.TCP4},
		shows: []string{`zero.Read\(1\): 0 "" EINVAL`},
		play: func(s *stage) {
			srv, _ := s.pair()
			of := reflect.TypeOf(srv.Conn).Elem()
			if !token.IsExported(of.Name()) {
				of = reflect.TypeFor[percore.Conn]() // users can't make NetBuffers' types
			}
			zero := reflect.New(of).Interface().(net.Conn)
			c := &actor{Conn: zero, stage: s, name: "zero"}
			c.read(1)
			c.read(0)
			c.write("x")
			c.deadline("SetDeadline", time.Time{})
			c.deadline("SetReadDeadline", time.Time{})
			c.deadline("SetWriteDeadline", time.Time{})
			c.addrs()
			c.closeRead()
			c.closeWrite()
			for _, option := range tcpOptions {
				c.call(option.name, func() error { return option.set(c) })
			}
			c.call("SyscallConn", func() error { _, err := as[syscallConn](c).SyscallConn(); return err })
			c.call("ReadFrom", func() error { _, err := as[io.ReaderFrom](c).ReadFrom(strings.NewReader("x")); return err })
			c.call("WriteTo", func() error { _, err := as[io.WriterTo](c).WriteTo(io.Discard); return err })
			c.call("MultipathTCP", func() error { _, err := as[multipathTCPer](c).MultipathTCP(); return err })
			c.close()
		},
	}, {
		name:  "listeners",
		kinds: []testnet.Kind{testnet.TCP4},
		shows: []string{`zero.Accept: EINVAL`},
		play: func(s *stage) {
			ln := reflect.New(reflect.TypeOf(s.listen()).Elem()).Interface().(net.Listener)
			_, err := ln.Accept()
			s.noteError("zero.Accept", err)
			s.noteError("zero.SetDeadline", ln.(deadliner).SetDeadline(longAgo))
			_, err = ln.(syscallConn).SyscallConn()
			s.noteError("zero.SyscallConn", err)
			_, err = ln.(filer).File()
			s.noteError("zero.File", err)
			s.noteError("zero.Close", ln.Close())
		},
	}})
}
