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
		name:  "data and then the end",
		shows: []string{`Read\(20\): 6 " world" nil`, `io\.EOF`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("hello world")
			cli.close()
			srv.awaitPeerClosed()
			srv.read(5)
			srv.read(20)
			srv.read(20)
			srv.read(20)
			srv.close()
		},
	}, {
		name:  "the end wakes a blocked read",
		shows: []string{`blocked srv.Read\(8\): 0 "" io\.EOF`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginRead(8)
			blocked.stillBlocked()
			cli.close()
			blocked.end()
			srv.read(8)
		},
	}, {
		name:  "data wakes a blocked read, many times",
		shows: []string{`blocked srv.Read\(8\): 1 "9" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			for _, digit := range strings.Split("0123456789", "") {
				blocked := srv.beginRead(8)
				cli.write(digit)
				blocked.end()
			}
		},
	}, {
		name:  "a read takes part of what is there",
		shows: []string{`Read\(3\): 3 "abc"`, `Read\(100\): 3 "ghi"`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("abcdefghi")
			srv.awaitReadable(9)
			srv.read(3)
			srv.read(3)
			srv.read(100)
			blocked := srv.beginRead(100)
			blocked.stillBlocked()
			cli.write("jkl")
			blocked.end()
		},
	}, {
		name: "reads of exactly what is there",
		play: func(s *stage) {
			srv, cli := s.pair()
			for _, text := range []string{"a", "bc", "def", "ghij"} {
				cli.write(text)
				srv.awaitReadable(len(text))
				srv.read(len(text))
			}
			cli.close()
			srv.awaitPeerClosed()
			srv.read(1)
		},
	}, {
		name:  "much data to the server",
		shows: []string{`ReadAll: 4194304 bytes, sha256 \w+ nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginReadAll()
			cli.writeBytes(pattern(muchData / 4))
			cli.close()
			blocked.end()
		},
	}, {
		name:  "much data from the server",
		shows: []string{`ReadAll: 4194304 bytes, sha256 \w+ nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := cli.beginReadAll()
			srv.writeBytes(pattern(muchData / 4))
			srv.close()
			blocked.end()
		},
	}, {
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

func TestDiffZeroLength(t *testing.T) {
	const (
		read  = `srv.Read\(0\): 0 "" nil`
		write = `srv.Write\(""\): 0 nil`
	)
	both := func(srv *actor) {
		srv.read(0)
		srv.call("Read(nil)", func() error { _, err := srv.Conn.Read(nil); return err })
		srv.write("")
		srv.call("Write(nil)", func() error { _, err := srv.Conn.Write(nil); return err })
	}
	playScripts(t, []script{{
		name:  "open, no data",
		shows: []string{read, write},
		play: func(s *stage) {
			srv, _ := s.pair()
			both(srv)
		},
	}, {
		name:  "open, data waiting",
		shows: []string{read, `Read\(9\): 4 "data" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("data")
			srv.awaitReadable(4)
			both(srv)
			srv.read(9)
		},
	}, {
		name:  "after the end",
		shows: []string{read, write},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.closeWrite()
			srv.awaitPeerClosed()
			both(srv)
			srv.read(1)
			both(srv)
		},
	}, {
		name:  "after Close",
		shows: []string{`Read\(0\): 0 "" OpError.*net\.ErrClosed`, `Write\(""\): 0 OpError.*net\.ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			both(srv)
		},
	}, {
		name:  "after the deadline",
		shows: []string{read, `Write\(""\): 0 OpError.*os\.ErrDeadlineExceeded`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("data")
			srv.awaitReadable(4)
			srv.deadline("SetDeadline", longAgo)
			both(srv)
		},
	}, {
		name:  "after a reset",
		kinds: onTCP,
		shows: []string{read, `Write.*Errno|Write.*ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.reset()
			srv.awaitBroken()
			both(srv)
			srv.read(1)
		},
	}, {
		name:  "after CloseWrite",
		shows: []string{read},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.closeWrite()
			both(srv)
		},
	}, {
		name:  "after CloseRead",
		shows: []string{read, write, `Read\(1\): 0 "" io\.EOF`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.closeRead()
			both(srv)
			srv.read(1)
		},
	}})
}

func TestDiffReset(t *testing.T) {
	playScripts(t, []script{{
		name:  "seen by reads first",
		kinds: onTCP,
		shows: []string{`srv.Read\(8\): 0 "" OpError.*SyscallError\{"read"\} > ECONNRESET`, `srv.Read\(8\): 0 "" io\.EOF`, `SyscallError\{"write"\} > EPIPE`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.reset()
			srv.awaitBroken()
			srv.read(8)
			srv.read(8)
			srv.write("x")
			srv.write("x")
			srv.read(8)
			srv.addrs()
			srv.close()
			srv.addrs()
		},
	}, {
		name:  "seen by writes first",
		kinds: onTCP,
		shows: []string{`srv.Write\("x"\): 0 OpError.*SyscallError\{"write"\} > ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.reset()
			srv.awaitBroken()
			srv.write("x")
			srv.write("x")
			srv.read(8)
			srv.close()
		},
	}, {
		name:  "behind data",
		kinds: onTCP,
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("last words")
			srv.awaitReadable(10)
			cli.reset()
			srv.awaitBroken()
			srv.read(4)
			srv.read(100)
			srv.read(100)
			srv.read(100)
			srv.write("x")
		},
	}, {
		name:  "after a short read",
		kinds: onTCP,
		shows: []string{`ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("short")
			srv.awaitReadable(5)
			srv.read(100) // an engine that remembers "drained" must not miss later bytes
			cli.reset()
			srv.awaitBroken()
			srv.read(100)
			srv.read(100)
		},
	}, {
		name:  "wakes a blocked read",
		kinds: onTCP,
		shows: []string{`blocked srv.Read\(8\): 0 "" OpError.*ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginRead(8)
			blocked.stillBlocked()
			cli.reset()
			blocked.end()
			srv.read(8)
		},
	}, {
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
		name:  "by a peer that closes with unread data",
		shows: []string{`ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.write("never read")
			cli.awaitReadable(10)
			cli.close()
			srv.awaitBroken()
			srv.read(8)
			srv.read(8)
			srv.write("x")
			srv.write("x")
		},
	}, {
		name:  "by a peer that has closed and is written to",
		shows: []string{`SyscallError\{"write"\} > EPIPE`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.close()
			srv.awaitPeerClosed()
			srv.read(8)
			srv.write("x") // over TCP a reset answers it
			srv.awaitBroken()
			srv.write("y")
			srv.read(8)
			srv.write("z")
			srv.read(8)
		},
	}, {
		name:  "from the server, by closing with unread data",
		shows: []string{`cli.Read.*ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("never read")
			srv.awaitReadable(10)
			srv.close()
			cli.awaitBroken()
			cli.read(8)
		},
	}, {
		name:  "from the server, by SetLinger(0)",
		kinds: onTCP,
		shows: []string{`cli.Read.*ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.reset()
			cli.awaitBroken()
			cli.read(8)
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
		name:  "server stops writing first",
		shows: []string{`cli.ReadAll: "answer" nil`, `srv.ReadAll: "question" nil`, `EPIPE`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.write("answer")
			srv.closeWrite()
			cli.readAll()
			cli.write("question")
			srv.write("too late")
			cli.closeWrite()
			srv.readAll()
			srv.closeWrite()
			srv.close()
			cli.close()
		},
	}, {
		name:  "client stops writing first",
		shows: []string{`srv.ReadAll: "question" nil`, `cli.ReadAll: "answer" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("question")
			cli.closeWrite()
			srv.readAll()
			srv.read(1)
			srv.write("answer")
			srv.closeWrite()
			cli.readAll()
			srv.read(1)
			srv.close()
		},
	}, {
		name:  "twice",
		shows: []string{`CloseWrite\(\): nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.closeWrite()
			srv.closeWrite()
			srv.closeRead()
			srv.closeRead()
			cli.read(1)
		},
	}, {
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
		name:  "of a closed connection",
		shows: []string{`CloseWrite\(\): OpError\{"close".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			srv.closeWrite()
			srv.closeRead()
		},
	}, {
		name: "of a reset connection",
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.write("never read")
			cli.awaitReadable(10)
			cli.close()
			srv.awaitBroken()
			srv.closeWrite()
			srv.closeRead()
			srv.read(1)
			srv.close()
		},
	}, {
		name:  "CloseRead wakes a blocked read",
		shows: []string{`blocked srv.Read\(8\): 0 "" io\.EOF`, `cli.Read\(9\): 8 "still on"`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginRead(8)
			blocked.stillBlocked()
			srv.closeRead()
			blocked.end()
			srv.read(8)
			srv.write("still on")
			cli.awaitReadable(8)
			cli.read(9)
		},
	}, {
		name:  "CloseRead with data waiting",
		shows: []string{`srv.Read\(8\)`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("waiting")
			srv.awaitReadable(7)
			srv.closeRead()
			srv.read(4)
			srv.read(8)
			srv.read(8)
		},
	}, {
		name: "CloseRead after a short read",
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("short")
			srv.awaitReadable(5)
			srv.read(100)
			srv.closeRead()
			srv.read(100)
			srv.read(100)
		},
	}, {
		name:  "CloseRead, then data arrives",
		kinds: onTCP, // over unix sockets the peer's write fails instead
		shows: []string{`srv.Read\(100\): 4 "more" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.closeRead()
			srv.read(100)
			cli.write("more")
			srv.awaitReadable(4)
			srv.read(100)
			srv.read(100)
			cli.close()
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
		name:  "twice",
		shows: []string{`srv.Close\(\): nil`, `srv.Close\(\): OpError\{"close".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.close()
			srv.close()
			cli.read(1)
		},
	}, {
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
	}, {
		name: "wakes a read and a write and leaves the peer what was sent",
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.write("sent")
			read := srv.beginRead(8)
			srv.close()
			read.end()
			cli.readAll()
			srv.addrs()
		},
	}, {
		name:  "then every method",
		shows: []string{`ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			srv.read(1)
			srv.write("x")
			srv.deadline("SetDeadline", time.Now().Add(time.Hour))
			srv.deadline("SetReadDeadline", longAgo)
			srv.deadline("SetWriteDeadline", time.Time{})
			srv.closeRead()
			srv.closeWrite()
			srv.addrs()
			srv.call("SetReadBuffer", func() error { return as[interface{ SetReadBuffer(int) error }](srv).SetReadBuffer(4096) })
			srv.call("SetWriteBuffer", func() error { return as[interface{ SetWriteBuffer(int) error }](srv).SetWriteBuffer(4096) })
			srv.close()
		},
	}, {
		name: "of an idle connection by its peer, and the listener goes on",
		play: func(s *stage) {
			ln := s.listen()
			for range 3 {
				srv, cli := s.connect(ln)
				cli.close()
				srv.read(1)
				srv.close()
			}
		},
	}}))
}

func TestDiffAddrs(t *testing.T) {
	playScripts(t, []script{{
		name:  "open and closed",
		shows: []string{`srv.LocalAddr: \w+Addr\(`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.addrs()
			cli.close()
			srv.read(1)
			srv.addrs()
			srv.close()
			srv.addrs()
		},
	}, {
		name:  "asked for the first time after Close",
		shows: []string{`srv.LocalAddr: TCPAddr\(tcp .*<ln>\)`},
		kinds: onTCP,
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			srv.addrs()
		},
	}, {
		name:  "asked for the first time after a reset",
		shows: []string{`srv.LocalAddr: TCPAddr\(tcp .*<ln>\)`},
		kinds: onTCP,
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.reset()
			srv.awaitBroken()
			srv.addrs()
			srv.read(1)
			srv.addrs()
		},
	}, {
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
