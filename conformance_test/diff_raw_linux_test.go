package conformance

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// file calls File and notes the result. It returns nil if File fails.
func (a *actor) file() *os.File {
	f, err := as[filer](a).File()
	a.call("File", func() error { return err })
	if f != nil {
		// This is the one allowed difference: percore says tcp for tcp4 and tcp6 (docs/DIFFERENCES.md).
		a.stage.names = append(a.stage.names, "tcp4:", "tcp:", "tcp6:", "tcp:")
		a.note("file: %s %s", f.Name(), fileFlags(a.stage, f))
		a.stage.Cleanup(func() { f.Close() })
	}
	return f
}

// fileFlags describes a descriptor. It doesn't use File.Fd, which may change the descriptor.
func fileFlags(s *stage, c syscallConn) (flags string) {
	raw, err := c.SyscallConn()
	if err != nil {
		s.Fatalf("SyscallConn: %v", err)
	}
	err = raw.Control(func(fd uintptr) { flags = fmt.Sprint(readOptions(int(fd), nil)) })
	if err != nil {
		s.Fatalf("Control: %v", err)
	}
	return flags
}

func TestDiffFile(t *testing.T) {
	playScripts(t, []script{{
		name:  "outlives the connection",
		shows: []string{`cli.Read\(20\): 8 "by copy!" nil`, `cli.Read\(20\): 0 "" io\.EOF`, `reading the copy: "answer" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			f := srv.file()
			srv.close()
			cli.write("answer")
			buf := make([]byte, 6)
			_, err := io.ReadFull(f, buf)
			s.note("reading the copy: %q %s", buf, describeError(err))
			_, err = io.WriteString(f, "by copy!")
			s.noteError("writing to the copy", err)
			cli.awaitReadable(8)
			cli.read(20)
			s.noteError("closing the copy", f.Close())
			cli.read(20)
		},
	}, {
		name:  "closed before the connection",
		shows: []string{`srv.Read\(20\): 4 "data" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			f := srv.file()
			s.noteError("closing the copy", f.Close())
			s.noteError("closing the copy again", f.Close())
			s.note("connection: %s", fileFlags(s, as[syscallConn](srv)))
			cli.write("data")
			srv.awaitReadable(4)
			srv.read(20)
			blocked := srv.beginRead(20)
			blocked.stillBlocked()
			cli.close()
			blocked.end()
		},
	}, {
		name:  "read by turns with the connection",
		shows: []string{`srv.Read\(2\): 2 "ab" nil`, `copy reads 2 "cd" nil`, `srv.Read\(9\): 2 "ef" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			f := srv.file()
			defer f.Close()
			cli.write("abcd")
			srv.awaitReadable(4)
			srv.read(2)
			buf := make([]byte, 9)
			n, err := f.Read(buf)
			s.note("copy reads %d %q %s", n, buf[:n], describeError(err))
			blocked := srv.beginRead(9)
			cli.write("ef")
			blocked.end()
		},
	}, {
		name:  "whose Fd is asked for",
		shows: []string{`connection: \[`},
		play: func(s *stage) {
			srv, cli := s.pair()
			f := srv.file()
			defer f.Close()
			// Fd makes the descriptor blocking. It makes the connection's blocking, too, because it
			// is the same open file.
			s.note("Fd is open: %t", isOpen(f.Fd()))
			s.note("connection: %s", fileFlags(s, as[syscallConn](srv)))
			cli.write("data")
			srv.awaitReadable(4)
			srv.read(20)
			blocked := srv.beginRead(20)
			runtime.GC() // a read stuck in the kernel must not delay it
			cli.write("more")
			blocked.end()
			cli.close()
			srv.read(20)
		},
	}, {
		name:  "asked for again when Fd was",
		shows: []string{`Fd of the other is open: true`},
		play: func(s *stage) {
			srv, cli := s.pair()
			f := srv.file()
			s.note("Fd is open: %t", isOpen(f.Fd()))
			again := srv.file() // must leave the first file blocking
			s.note("first file: %s", fileFlags(s, f))
			s.note("connection: %s", fileFlags(s, as[syscallConn](srv)))
			s.note("Fd of the other is open: %t", isOpen(again.Fd()))
			s.note("connection: %s", fileFlags(s, as[syscallConn](srv)))
			cli.close()
			srv.read(20)
		},
	}, {
		name:  "made into a connection of net",
		shows: []string{`fc.Read\(4\): 4 "ping" nil`, `cli.Read\(20\): 4 "pong" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			f := srv.file()
			c, err := net.FileConn(f)
			if err != nil {
				s.Fatalf("FileConn: %v", err)
			}
			f.Close()
			srv.close()
			fc := &actor{Conn: c, stage: s, name: "fc"}
			fc.addrs()
			cli.write("ping")
			fc.awaitReadable(4)
			fc.read(4)
			fc.write("pong")
			cli.awaitReadable(4)
			cli.read(20)
			fc.close()
			cli.read(20)
		},
	}, {
		name:  "of a closed connection",
		shows: []string{`srv.File: OpError\{"file".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			srv.file()
		},
	}, {
		name:  "of a listener, which goes on accepting with it",
		shows: []string{`srv.Read\(20\): 5 "hello" nil`, `ln.File: OpError\{"file".*net\.ErrClosed`},
		kinds: []testnet.Kind{testnet.TCP4, testnet.TCP6, testnet.Abstract},
		play: func(s *stage) {
			ln := s.listen()
			f, err := ln.(filer).File()
			if err != nil {
				s.Fatalf("File: %v", err)
			}
			s.note("file: %s %s", f.Name(), fileFlags(s, f))
			s.noteError("closing the listener", ln.Close())
			successor, err := net.FileListener(f)
			if err != nil {
				s.Fatalf("FileListener: %v", err)
			}
			defer successor.Close()
			s.noteError("closing the file", f.Close())
			s.note("successor: %s", describeAddr(successor.Addr()))
			for range 8 { // often enough to meet every socket of the port
				srv, cli := s.connect(successor)
				cli.write("hello")
				srv.awaitReadable(5)
				srv.read(20)
				srv.close()
				cli.close()
			}
			_, err = ln.(filer).File()
			s.noteError("ln.File", err)
		},
	}, {
		name:  "of a unix listener, closed without the listener",
		kinds: []testnet.Kind{testnet.Unix},
		shows: []string{`cli.Read\(1\): 0 "" io\.EOF`},
		play: func(s *stage) {
			ln := s.listen()
			f, err := ln.(filer).File()
			if err != nil {
				s.Fatalf("File: %v", err)
			}
			s.note("file: %s %s", f.Name(), fileFlags(s, f))
			s.noteError("closing the file", f.Close())
			srv, cli := s.connect(ln)
			srv.close()
			cli.read(1)
		},
	}})
}

func isOpen(fd uintptr) bool {
	_, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
	return err == nil
}

// rawConn returns the connection's RawConn.
func (a *actor) rawConn() syscall.RawConn {
	raw, err := as[syscallConn](a).SyscallConn()
	a.call("SyscallConn", func() error { return err })
	if err != nil {
		a.stage.Fatalf("%s has no RawConn", a.name)
	}
	return raw
}

// rawRead is readOnce, but reads through a RawConn until the result is not EAGAIN.
func (a *actor) rawRead(size int) (n int, line string) {
	raw, err := as[syscallConn](a).SyscallConn()
	if err != nil {
		return 0, a.name + ".SyscallConn: " + describeError(err)
	}
	calls := 0
	var callErr error
	buf := make([]byte, size)
	err = raw.Read(func(fd uintptr) bool {
		calls++
		n, callErr = unix.Read(int(fd), buf)
		return callErr != unix.EAGAIN
	})
	n = max(n, 0)
	return n, fmt.Sprintf("%s.RawRead: %d %s errno=%v called=%t %s", a.name, n, digest(buf[:n]), callErr, calls > 0, describeError(err))
}

func (a *actor) beginRawRead(size int) *pending {
	return a.stage.begin(a.name+".RawRead", func() string {
		_, line := a.rawRead(size)
		return line
	})
}

func TestDiffSyscallConn(t *testing.T) {
	playScripts(t, []script{{
		name:  "control",
		shows: []string{`type 1`, `OpError\{"raw-control".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			raw := srv.rawConn()
			control := func() {
				err := raw.Control(func(fd uintptr) {
					typ, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE)
					s.note("type %d %v", typ, err)
				})
				s.noteError("Control", err)
			}
			control()
			srv.close()
			control()
			raw = srv.rawConn()
			control()
		},
	}, {
		name:  "read that leaves data behind",
		shows: []string{`srv.Read\(20\): 4 "left" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			raw := srv.rawConn()
			blocked := s.begin("readiness", func() string {
				return "readiness: " + describeError(raw.Read(func(fd uintptr) bool {
					queued, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
					return err == nil && queued > 0
				}))
			})
			blocked.stillBlocked()
			cli.write("left")
			blocked.end()
			srv.read(20)
		},
	}, {
		name:  "read with deadlines",
		shows: []string{`RawRead: 0 "" errno=<nil> called=false OpError\{"raw-read".*os\.ErrDeadlineExceeded`, `errno=resource temporarily unavailable called=true OpError\{"raw-read".*os\.ErrDeadlineExceeded`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.deadline("SetReadDeadline", longAgo)
			srv.beginRawRead(20).end()
			s.waitInTime(func(wait time.Duration) bool {
				srv.deadline("SetReadDeadline", time.Now().Add(wait))
				srv.beginRawRead(20).end()
				return strings.Contains(s.lines[len(s.lines)-1], "called=true")
			})
			srv.deadline("SetReadDeadline", time.Time{})
			blocked := srv.beginRawRead(20)
			blocked.stillBlocked()
			srv.deadline("SetReadDeadline", longAgo)
			blocked.end()
		},
	}, {
		name:  "write that waits",
		shows: []string{`RawWrite: waited: true, all: true nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			raw := srv.rawConn()
			blocked := s.begin("srv.RawWrite", func() string {
				rest, waited := pattern(muchData), false
				err := raw.Write(func(fd uintptr) bool {
					for len(rest) > 0 {
						n, err := unix.Write(int(fd), rest)
						if err != nil {
							waited = true
							return err != unix.EAGAIN
						}
						rest = rest[n:]
					}
					return true
				})
				return fmt.Sprintf("RawWrite: waited: %t, all: %t %s", waited, len(rest) == 0, describeError(err))
			})
			blocked.stillBlocked()
			reading := cli.beginReadAll()
			blocked.end()
			srv.close()
			reading.end()
		},
	}, {
		name:  "write with deadlines, and closed",
		shows: []string{`OpError\{"raw-write".*os\.ErrDeadlineExceeded`, `OpError\{"raw-write".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			raw := srv.rawConn()
			write := func() {
				called := false
				err := raw.Write(func(uintptr) bool { called = true; return true })
				s.note("RawWrite: called: %t %s", called, describeError(err))
			}
			write()
			srv.deadline("SetWriteDeadline", longAgo)
			write()
			srv.close()
			write()
		},
	}, {
		name:  "of a listener",
		shows: []string{`types \[1\]`, `Read: EINVAL`, `Control: OpError\{"raw-control".*net\.ErrClosed`},
		play: func(s *stage) {
			ln := s.listen()
			raw, err := ln.(syscallConn).SyscallConn()
			s.noteError("SyscallConn", err)
			ask := func() {
				var types []int // percore shows one socket per loop
				s.noteError("Control", raw.Control(func(fd uintptr) {
					typ, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE)
					if err != nil {
						s.Fatalf("the listener's socket: %v", err)
					}
					types = append(types, typ)
				}))
				s.note("types %v", slices.Compact(types))
				s.noteError("Read", raw.Read(func(uintptr) bool { return true }))
				s.noteError("Write", raw.Write(func(uintptr) bool { return true }))
			}
			ask()
			ln.Close()
			ask()
		},
	}})
}

// sendUrgent sends one byte of urgent data.
func (a *actor) sendUrgent(b byte) {
	raw, err := as[syscallConn](a).SyscallConn()
	if err != nil {
		a.stage.Fatalf("SyscallConn: %v", err)
	}
	var sendErr error
	err = raw.Control(func(fd uintptr) { _, sendErr = unix.SendmsgN(int(fd), []byte{b}, nil, nil, unix.MSG_OOB) })
	if err != nil || sendErr != nil {
		a.stage.Fatalf("sending urgent data: %v %v", err, sendErr)
	}
}

// TestDiffUrgentData sends MSG_OOB. The kernel ends a read at the urgent mark,
// so a short read does not mean that nothing is left.
func TestDiffUrgentData(t *testing.T) {
	playScripts(t, []script{{
		name:  "between data",
		kinds: onTCP,
		shows: []string{`srv.ReadFull\(4\): "abcd" nil`, `blocked srv.Read\(100\): 2 "ef" nil`},
		play: func(s *stage) {
			// If a signal is pending at the urgent mark (the Go runtime sends some), the kernel
			// returns EAGAIN although there is data, on any engine.
			s.retry("reading past urgent data", func(int) bool {
				srv, cli := s.pair()
				cli.write("ab")
				cli.sendUrgent('!')
				cli.write("cd")
				srv.awaitReadable(2) // the kernel counts only up to the mark
				reading := s.begin("reading", func() string { return srv.readFullOutcome(4, 100) })
				if !reading.ended(3 * time.Second) {
					return false
				}
				reading.end()
				blocked := srv.beginRead(100)
				cli.write("ef")
				blocked.end()
				cli.close()
				srv.read(100)
				return true
			})
		},
	}, {
		name:  "while a read is blocked",
		kinds: onTCP,
		shows: []string{`srv.Read: blocked: true`, `blocked srv.Read\(8\): 4 "data" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			blocked := srv.beginRead(8)
			cli.sendUrgent('!')
			blocked.stillBlocked()
			cli.write("data")
			blocked.end()
		},
	}, {
		name:  "many times",
		kinds: onTCP,
		shows: []string{`received 40000 bytes`},
		play: func(s *stage) {
			// See above for why this may take several tries.
			s.retry("reading past urgent data", func(int) bool {
				srv, cli := s.pair()
				reading := s.begin("reading", func() string {
					data, err := io.ReadAll(srv.Conn)
					return fmt.Sprintf("received %s %s", digest(data), describeError(err))
				})
				for rest := pattern(40_000); len(rest) > 0; rest = rest[200:] {
					cli.Conn.Write(rest[:200])
					// A second urgent byte would turn the first one into normal data if the reader
					// had not passed it yet.
					for deadline := time.Now().Add(3 * time.Second); unread(s, srv) > 0; runtime.Gosched() {
						if time.Now().After(deadline) {
							return false
						}
					}
					cli.sendUrgent('!')
				}
				cli.close()
				reading.end()
				return true
			})
		},
	}})
}

// unread returns how many bytes are in the socket's receive buffer.
func unread(s *stage, a *actor) (n int) {
	raw, err := as[syscallConn](a).SyscallConn()
	if err != nil {
		s.Fatalf("SyscallConn: %v", err)
	}
	raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// TestDiffPassedDescriptors sends descriptors along with data. The kernel ends a read where they
// are attached, so a short read does not mean that nothing is left. No call receives the
// descriptors, and they must not leak.
func TestDiffPassedDescriptors(t *testing.T) {
	onUnix := []testnet.Kind{testnet.Unix, testnet.Abstract}
	send := func(s *stage, cli *actor, text string) {
		f := testnet.TempFile(s, []byte("passed"))
		defer f.Close()
		rights := unix.UnixRights(int(f.Fd()))
		n, oobn, err := cli.Conn.(*net.UnixConn).WriteMsgUnix([]byte(text), rights, nil)
		if err != nil || n != len(text) || oobn != len(rights) {
			s.Fatalf("sending a descriptor: %d %d %v", n, oobn, err)
		}
		runtime.KeepAlive(f)
	}
	playScripts(t, []script{{
		name:  "between data",
		kinds: onUnix,
		shows: []string{`srv.ReadFull\(6\): "abcdef" nil`, `blocked srv.Read\(100\): 2 "gh" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("ab")
			send(s, cli, "cd")
			cli.write("ef")
			srv.awaitReadable(6)
			srv.readFull(6, 100)
			blocked := srv.beginRead(100)
			cli.write("gh")
			blocked.end()
			cli.close()
			srv.read(100)
		},
	}, {
		name:  "with every message",
		kinds: onUnix,
		shows: []string{`srv.ReadFull\(30\): "message 0.*message 2 " nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			for i := range 3 {
				send(s, cli, fmt.Sprintf("message %d ", i))
			}
			srv.awaitReadable(30)
			srv.readFull(30, 100)
			blocked := srv.beginRead(100)
			send(s, cli, "more")
			blocked.end()
			send(s, cli, "never read")
		},
	}})
}
