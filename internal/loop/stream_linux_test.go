package loop

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// readOnce is a function for Stream.Read: one read into p.
func readOnce(p []byte, n, calls *int) func(fd uintptr) bool {
	return func(fd uintptr) bool {
		*calls++
		var err error
		*n, err = unix.Read(int(fd), p)
		return err != unix.EAGAIN
	}
}

// TestStreamReadLeavesSomething has fn read a part: the next read must find the rest
// though no edge announces it.
func TestStreamReadLeavesSomething(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		mustWrite(t, peer, "part rest")
		p := make([]byte, 5)
		var n, calls int
		if err := f.Stream().Read(readOnce(p, &n, &calls)); err != nil || string(p[:n]) != "part " {
			t.Fatalf("Stream.Read: got %q, %v, want \"part \"", p[:n], err)
		}
		mustRead(t, f, "rest")
	})
}

// TestStreamReadKnowsDrained: where a read has taken everything, fn isn't called
// before there is something, and afterwards a short read still proves something.
func TestStreamReadKnowsDrained(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newPair(t, g.Loop(0), overTCP)
	mustWrite(t, peer, "first")
	mustRead(t, f, "first")
	settle(t, f.loop)
	p := make([]byte, 64)
	var n, calls int
	reading := startErr(func() error { return f.Stream().Read(readOnce(p, &n, &calls)) })
	awaitWaiting(t, &f.rd)
	mustWrite(t, peer, "second")
	if r := await(t, "Stream.Read", reading); r.err != nil || string(p[:n]) != "second" {
		t.Fatalf("Stream.Read: got %q, %v, want \"second\"", p[:n], r.err)
	}
	if calls != 1 {
		t.Errorf("got %d calls of fn, want 1: the kernel need not be asked while there is nothing", calls)
	}
	if bits := f.rd.state.Load(); bits&shortReadUnreliable != 0 {
		t.Errorf("state: got %#b, want shortReadUnreliable off", bits)
	}
}

// readMessage has a Stream's Read read the peer's bytes, and calls then within it.
func readMessage(t *testing.T, f *FD, peer net.Conn, then func()) {
	t.Helper()
	mustWrite(t, peer, "message")
	settle(t, f.loop)
	p := make([]byte, 64)
	var n, calls int
	read := readOnce(p, &n, &calls)
	err := f.Stream().Read(func(fd uintptr) bool {
		if !read(fd) {
			return false
		}
		then()
		return true
	})
	if err != nil || string(p[:n]) != "message" {
		t.Fatalf("got %q, %v, want \"message\"", p[:n], err)
	}
}

// TestStreamDrained: after a function has said so, the next one isn't called before there is
// something new, unless a short read is unreliable.
func TestStreamDrained(t *testing.T) {
	for _, tt := range []struct {
		name     string
		over     transport
		says     bool
		before   func(t *testing.T, f *FD, peer net.Conn) // the message is there, and read
		reliable bool
	}{
		{"said", overTCP, true, nil, true},
		{"not said", overTCP, false, nil, false},
		{"over unix", overUnix, true, nil, false},
		{"the peer has finished", overTCP, true, func(t *testing.T, f *FD, peer net.Conn) {
			if err := peer.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
			testnet.Eventually(t, "the hangup", func() bool { return f.rd.state.Load()&hangup != 0 })
		}, false},
		{"the user has the descriptor", overTCP, true, func(t *testing.T, f *FD, _ net.Conn) { f.rd.state.Or(rawInUse) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newTestGroup(t, Config{Loops: 1})
			f, peer := newPair(t, g.Loop(0), tt.over)
			readMessage(t, f, peer, func() {
				if tt.before != nil {
					tt.before(t, f, peer)
				}
				if tt.says {
					f.Stream().Drained()
				}
			})
			if got := f.rd.state.Load()&ready == 0; got != tt.reliable {
				t.Errorf("got reliable %t, want %t", got, tt.reliable)
			}
			if f.rd.state.Load()&hangup == 0 {
				mustWrite(t, peer, "next")
				mustRead(t, f, "next")
			} else if n, err := f.Read(make([]byte, 8)); n != 0 || err != io.EOF {
				t.Errorf("Read: got %d, %v, want 0, EOF", n, err)
			}
		})
	}
}

// TestStreamDrainedIsForgotten: it holds for the call in which it was said.
func TestStreamDrainedIsForgotten(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newPair(t, g.Loop(0), overTCP)
	for _, says := range []bool{true, false} {
		readMessage(t, f, peer, func() {
			if says {
				f.Stream().Drained()
			}
		})
		if got := f.rd.state.Load()&ready == 0; got != says {
			t.Errorf("said %t: got reliable %t", says, got)
		}
	}
}
