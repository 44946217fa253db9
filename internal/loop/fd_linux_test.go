package loop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// A stream is a sequence of bytes that any part of tells its place: what is
// lost, repeated or swapped shows up where it happened.
type stream struct{ rng *rand.ChaCha8 }

func newStream(id int) *stream {
	return &stream{rand.NewChaCha8([32]byte{byte(id), byte(id >> 8)})}
}

// next returns the next n bytes.
func (s *stream) next(n int) []byte {
	p := make([]byte, n)
	_, _ = s.rng.Read(p)
	return p
}

// send writes total bytes of stream id in pieces of random size.
func send(w io.Writer, id, total, pieceMax int) error {
	s := newStream(id)
	for sent := 0; sent < total; {
		p := s.next(min(1+rand.IntN(pieceMax), total-sent))
		n, err := w.Write(p)
		if n != len(p) || err != nil {
			return fmt.Errorf("at byte %d: Write of %d bytes: got %d, %v", sent, len(p), n, err)
		}
		sent += n
	}
	return nil
}

// receive reads stream id, of total bytes and then its end, in pieces of random
// size.
func receive(r io.Reader, id, total, pieceMax int) error {
	s := newStream(id)
	p := make([]byte, pieceMax)
	for got := 0; ; {
		n, err := r.Read(p[:1+rand.IntN(pieceMax)])
		if want := s.next(n); !bytes.Equal(p[:n], want) {
			return fmt.Errorf("at byte %d: the next %d bytes are wrong", got, n)
		}
		switch got += n; {
		case err == io.EOF && got == total:
			return nil
		case err != nil:
			return fmt.Errorf("at byte %d of %d: Read: %w", got, total, err)
		case n == 0:
			return fmt.Errorf("at byte %d of %d: Read: got 0, nil", got, total)
		case got > total:
			return fmt.Errorf("%d bytes were received, %d sent", got, total)
		}
	}
}

// Both directions at once, through every size of piece, between two loops.
func TestTransfer(t *testing.T) {
	onEveryEngine(t, 2, func(t *testing.T, g *Group) {
		for _, tr := range []transport{overTCP, overUnix} {
			for _, pieceMax := range []int{1, 100, 5_000, 200_000, 2 << 20} {
				t.Run(fmt.Sprintf("%s/%d", tr.name, pieceMax), func(t *testing.T) {
					total := min(pieceMax*1_000, 2<<20)
					a, b := newFDPair(t, g.Loop(0), g.Loop(1), tr)
					transfer(t, a, b, total, pieceMax)
				})
			}
		}
	})
}

func transfer(t *testing.T, a, b *FD, total, pieceMax int) {
	t.Helper()
	var running sync.WaitGroup
	report := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i, ends := range [][2]*FD{{a, b}, {b, a}} {
		running.Go(func() {
			report("sending", send(ends[0], i, total, pieceMax))
			report("shutting down", ends[0].Shutdown(syscall.SHUT_WR))
		})
		running.Go(func() { report("receiving", receive(ends[1], i, total, pieceMax)) })
	}
	testnet.Within(t, "the transfer", running.Wait)
}

func TestEmptyRead(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		for _, p := range [][]byte{nil, {}} {
			if r := await(t, "empty Read", start(func() (int, error) { return f.Read(p) })); r != (result{}) {
				t.Errorf("empty Read with nothing to read: got %v, want 0, nil", r)
			}
		}
		mustWrite(t, peer, "data")
		awaitBits(t, f, ready)
		if n, err := f.Read(nil); n != 0 || err != nil {
			t.Errorf("empty Read with data there: got %d, %v, want 0, nil", n, err)
		}
		mustRead(t, f, "data")
		_ = f.SetReadDeadline(time.Unix(1, 0))
		if n, err := f.Read(nil); n != 0 || err != nil {
			t.Errorf("empty Read past the deadline: got %d, %v, want 0, nil as in package net", n, err)
		}
		closeFD(t, f)
		if n, err := f.Read(nil); n != 0 || err != ErrClosed {
			t.Errorf("empty Read after Close: got %d, %v, want 0, %v", n, err, ErrClosed)
		}
	})
}

func TestEmptyWrite(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		if n, err := f.Write(nil); n != 0 || err != nil {
			t.Errorf("empty Write: got %d, %v, want 0, nil", n, err)
		}
		_ = f.SetWriteDeadline(time.Unix(1, 0))
		if n, err := f.Write(nil); n != 0 || err != os.ErrDeadlineExceeded {
			t.Errorf("empty Write past the deadline: got %d, %v, want 0, a timeout as in package net", n, err)
		}
		closeFD(t, f)
		if n, err := f.Write(nil); n != 0 || err != ErrClosed {
			t.Errorf("empty Write after Close: got %d, %v, want 0, %v", n, err, ErrClosed)
		}
		_ = peer.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		if n, err := peer.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("peer Read: got %d, %v, want 0, EOF: nothing was written", n, err)
		}
	})
}

// The peer says it is done; the other direction stays as it was.
func TestHalfClose(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		read := start(func() (int, error) { return f.Read(make([]byte, 8)) })
		awaitWaiting(t, &f.rd)
		if err := peer.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatalf("CloseWrite: %v", err)
		}
		if r := await(t, "Read", read); r.n != 0 || r.err != io.EOF {
			t.Errorf("waiting Read: got %v, want 0, EOF", r)
		}
		for range 3 {
			if n, err := f.Read(make([]byte, 8)); n != 0 || err != io.EOF {
				t.Errorf("Read again: got %d, %v, want 0, EOF", n, err)
			}
		}
		if n, err := f.Write([]byte("answer")); n != 6 || err != nil {
			t.Errorf("Write: got %d, %v, want 6, nil", n, err)
		}
		if err := f.Shutdown(syscall.SHUT_WR); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		_ = peer.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		if got, err := io.ReadAll(peer); string(got) != "answer" || err != nil {
			t.Errorf("peer got %q, %v, want \"answer\", nil", got, err)
		}
	})
}

// Bytes that the peer wrote before it went away are read first, in however small
// pieces, and then the end.
func TestDataBeforeHangup(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		mustWrite(t, peer, "the rest")
		peer.Close()
		awaitBits(t, f, hangup)
		var got strings.Builder
		p := make([]byte, 3)
		for {
			r := await(t, "Read", start(func() (int, error) { return f.Read(p) }))
			got.Write(p[:r.n])
			if r.err != nil {
				if r.err != io.EOF {
					t.Errorf("Read: got %v, want EOF", r.err)
				}
				break
			}
		}
		if got.String() != "the rest" {
			t.Errorf("got %q, want \"the rest\"", got.String())
		}
	})
}

func TestReset(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for _, data := range []string{"", "data"} {
			t.Run(fmt.Sprintf("after %q", data), func(t *testing.T) {
				f, peer := newPair(t, g.Loop(0), overTCP)
				read := start(func() (int, error) { return f.Read(make([]byte, 8)) })
				awaitWaiting(t, &f.rd)
				if data != "" {
					mustWrite(t, peer, data)
					if r := await(t, "Read", read); r.n != len(data) || r.err != nil {
						t.Errorf("first Read: got %v, want %d, nil", r, len(data))
					}
					read = start(func() (int, error) { return f.Read(make([]byte, 8)) })
				}
				_ = peer.(*net.TCPConn).SetLinger(0)
				peer.Close()
				if r := await(t, "Read", read); r.n != 0 || r.err != syscall.ECONNRESET {
					t.Errorf("Read: got %v, want 0, %v", r, syscall.ECONNRESET)
				}
				if _, err := f.Write([]byte("x")); err != syscall.EPIPE {
					t.Errorf("Write: got %v, want %v", err, syscall.EPIPE)
				}
			})
		}
	})
}

func TestWriteToReset(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		f, peer := newPair(t, g.Loop(0), overTCP)
		written := start(func() (int, error) { return f.Write(manyBytes) })
		awaitWaiting(t, &f.wr)
		_ = peer.(*net.TCPConn).SetLinger(0)
		peer.Close()
		r := await(t, "Write", written)
		if r.err != syscall.ECONNRESET && r.err != syscall.EPIPE {
			t.Errorf("waiting Write: got %v, want %v or %v", r, syscall.ECONNRESET, syscall.EPIPE)
		}
	})
}

func TestShutdown(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		read := start(func() (int, error) { return f.Read(make([]byte, 8)) })
		awaitWaiting(t, &f.rd)
		if err := f.Shutdown(syscall.SHUT_RD); err != nil {
			t.Fatalf("Shutdown of reading: %v", err)
		}
		if r := await(t, "Read", read); r.n != 0 || r.err != io.EOF {
			t.Errorf("waiting Read: got %v, want 0, EOF", r)
		}
		if n, err := f.Write([]byte("x")); n != 1 || err != nil {
			t.Errorf("Write after that: got %d, %v, want 1, nil", n, err)
		}
		if err := f.Shutdown(syscall.SHUT_WR); err != nil {
			t.Fatalf("Shutdown of writing: %v", err)
		}
		if n, err := f.Write([]byte("x")); n != 0 || err != syscall.EPIPE {
			t.Errorf("Write after that: got %d, %v, want 0, %v", n, err, syscall.EPIPE)
		}
		closeFD(t, f)
		if err := f.Shutdown(syscall.SHUT_WR); err != ErrClosed {
			t.Errorf("Shutdown after Close: got %v, want %v", err, ErrClosed)
		}
	})
}

// A write longer than the kernel's buffers goes on as the peer makes room.
func TestLongWrite(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		const total = 3 << 20
		p := newStream(1).next(total)
		written := start(func() (int, error) { return f.Write(p) })
		awaitWaiting(t, &f.wr)
		_ = peer.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		got := make([]byte, total)
		if n, err := io.ReadFull(peer, got); err != nil {
			t.Fatalf("peer got %d of %d bytes: %v", n, total, err)
		}
		if !bytes.Equal(got, p) {
			t.Error("peer got other bytes than were written")
		}
		if r := await(t, "Write", written); r.n != total || r.err != nil {
			t.Errorf("Write: got %v, want %d, nil", r, total)
		}
	})
}

// A write that is cut says how much the peer will get, no more and no less.
func TestCutWrite(t *testing.T) {
	const total = 2 << 20
	cuts := []struct {
		name string
		cut  func(f *FD)
		want error
	}{
		{"deadline past", func(f *FD) { _ = f.SetWriteDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		{"deadline soon", func(f *FD) { _ = f.SetWriteDeadline(time.Now().Add(5 * time.Millisecond)) }, os.ErrDeadlineExceeded},
		{"close", func(f *FD) { _ = f.Close() }, ErrClosed},
		{"shutdown", func(f *FD) { _ = f.Shutdown(syscall.SHUT_WR) }, syscall.EPIPE},
	}
	for _, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			p := newStream(1).next(total)
			onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
				if cut.want == syscall.EPIPE && f.kind != TCP {
					t.Skip("shutdown(2) does not wake those who wait to write to a unix socket")
				}
				written := start(func() (int, error) { return f.Write(p) })
				awaitWaiting(t, &f.wr)
				cut.cut(f)
				r := await(t, "Write", written)
				if r.n <= 0 || r.n >= total || r.err != cut.want {
					t.Errorf("Write: got %v, want a part of %d, %v", r, total, cut.want)
				}
				length := r.n
				var rest <-chan result
				if cut.want == os.ErrDeadlineExceeded {
					// Writing can go on where it stopped.
					length = total
					_ = f.SetWriteDeadline(time.Time{})
					rest = start(func() (int, error) { return f.Write(p[r.n:]) })
				}
				_ = peer.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
				got := make([]byte, length)
				if n, err := io.ReadFull(peer, got); err != nil {
					t.Fatalf("peer got %d of %d bytes: %v", n, length, err)
				}
				if !bytes.Equal(got, p[:length]) {
					t.Error("peer got other bytes than were written")
				}
				if rest != nil {
					if r := await(t, "Write of the rest", rest); r.err != nil {
						t.Errorf("Write of the rest: %v", r)
					}
				} else if n, err := peer.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("peer Read after %d bytes: got %d, %v, want 0, EOF", length, n, err)
				}
			})
		})
	}
}

// Memory may have no more behind it from somewhere on: a mapping of a file that has
// been cut short meanwhile. A write says so, and doesn't wait for room.
func TestWriteFromMemoryThatIsGone(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector has no shadow of mapped memory: run it without -race")
	}
	const size, left = 256 << 10, 128 << 10
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := file.Truncate(size); err != nil {
			t.Fatal(err)
		}
		p, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatalf("mmap: %v", err)
		}
		defer unix.Munmap(p)
		if err := file.Truncate(left); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		for range 3 { // only the first to wait for room extends the registration, which is an edge
			r := await(t, "Write", start(func() (int, error) { return f.Write(p) }))
			if r.n > left || r.err != syscall.EFAULT {
				t.Errorf("Write: got %v, want %d at most, %v", r, left, syscall.EFAULT)
			}
		}
	})
}

// One Write's bytes are not interleaved with another's, even if each has to
// wait for room many times.
func TestConcurrentWrites(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		const writers, writes, size = 4, 3, 1 << 19
		var running sync.WaitGroup
		for w := range writers {
			running.Go(func() {
				p := bytes.Repeat([]byte{'a' + byte(w)}, size)
				for range writes {
					if n, err := f.Write(p); n != size || err != nil {
						t.Errorf("Write: got %d, %v, want %d, nil", n, err, size)
						return
					}
				}
			})
		}
		_ = peer.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		p := make([]byte, size)
		for i := range writers * writes {
			if _, err := io.ReadFull(peer, p); err != nil {
				t.Fatalf("peer: %v", err)
			}
			if n := bytes.Count(p, p[:1]); n != size {
				t.Fatalf("block %d: %d of %d bytes are one writer's, want all", i, n, size)
			}
		}
		testnet.Within(t, "the writers", running.Wait)
	})
}

// Concurrent Reads share the stream out: each byte goes to one of them.
func TestConcurrentReads(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		const readers, total = 4, 20_000
		var mu sync.Mutex
		seen := make(map[uint16]int)
		var running sync.WaitGroup
		for range readers {
			running.Go(func() {
				for {
					p := make([]byte, 2) // TestConcurrentReads writes in twos, so that no Read gets less
					n, err := f.Read(p)
					if err == io.EOF {
						return
					}
					if n != 2 || err != nil {
						t.Errorf("Read: got %d, %v, want 2, nil", n, err)
						return
					}
					mu.Lock()
					seen[uint16(p[0])<<8|uint16(p[1])]++
					mu.Unlock()
				}
			})
		}
		var b []byte
		for i := range total {
			b = append(b, byte(i>>8), byte(i))
			if len(b) >= 2*(1+rand.IntN(50)) {
				mustWrite(t, peer, string(b))
				b = b[:0]
			}
		}
		mustWrite(t, peer, string(b))
		peer.Close()
		testnet.Within(t, "the readers", running.Wait)
		if len(seen) != total {
			t.Errorf("%d different values were read, want %d", len(seen), total)
		}
		for v, n := range seen {
			if n != 1 {
				t.Errorf("value %d was read %d times, want once", v, n)
			}
		}
	})
}

func TestRawRead(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		p := make([]byte, 8)
		var n, calls int
		raw := startErr(func() error {
			return f.RawRead(func(fd uintptr) bool {
				calls++
				if fd != uintptr(f.sysfd) {
					t.Errorf("descriptor: got %d, want %d", fd, f.sysfd)
				}
				var err error
				n, err = unix.Read(int(fd), p)
				return err != unix.EAGAIN
			})
		})
		awaitWaiting(t, &f.rd)
		read := start(func() (int, error) { return f.Read(make([]byte, 8)) }) // has to wait for its turn
		mustWrite(t, peer, "raw")
		if r := await(t, "RawRead", raw); r.err != nil {
			t.Fatalf("RawRead: got %v, want nil", r.err)
		}
		if string(p[:n]) != "raw" || calls < 2 {
			t.Errorf("RawRead: got %q in %d calls, want \"raw\" in 2 at least", p[:n], calls)
		}
		mustWrite(t, peer, "data")
		if r := await(t, "Read", read); r.n != 4 || r.err != nil {
			t.Errorf("Read: got %v, want 4, nil", r)
		}
	})
}

func TestRawWrite(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) { writeMuch(t, "RawWrite", peer, f.RawWrite) })
}

// writeMuch writes more than fits by write, which is RawWrite or Stream.Write, and wants
// all of it to arrive.
func writeMuch(t *testing.T, name string, peer net.Conn, write func(fn func(fd uintptr) (done bool)) error) {
	t.Helper()
	const total = 3 << 20
	p, done := newStream(1).next(total), 0
	writing := startErr(func() error {
		return write(func(fd uintptr) bool {
			for done < total {
				n, err := unix.Write(int(fd), p[done:])
				if err == unix.EAGAIN {
					return false
				}
				if err != nil {
					t.Errorf("write: %v", err)
					return true
				}
				done += n
			}
			return true
		})
	})
	_ = peer.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	got := make([]byte, total)
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, p) {
		t.Errorf("peer: %v, the right bytes: %t", err, bytes.Equal(got, p))
	}
	if r := await(t, name, writing); r.err != nil {
		t.Errorf("%s: got %v, want nil", name, r.err)
	}
}

func TestRawIsInterrupted(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, _ net.Conn) {
		never := func(uintptr) bool { return false }
		raw := startErr(func() error { return f.RawRead(never) })
		awaitWaiting(t, &f.rd)
		_ = f.SetDeadline(time.Unix(1, 0))
		if r := await(t, "RawRead", raw); r.err != os.ErrDeadlineExceeded {
			t.Errorf("RawRead: got %v, want %v", r.err, os.ErrDeadlineExceeded)
		}
		called := func(uintptr) bool { t.Error("called past the deadline"); return true }
		if err := f.RawRead(called); err != os.ErrDeadlineExceeded {
			t.Errorf("RawRead past the deadline: got %v, want %v", err, os.ErrDeadlineExceeded)
		}
		if err := f.RawWrite(called); err != os.ErrDeadlineExceeded {
			t.Errorf("RawWrite past the deadline: got %v, want %v", err, os.ErrDeadlineExceeded)
		}
		_ = f.SetDeadline(time.Time{})
		raw = startErr(func() error { return f.RawRead(never) })
		awaitWaiting(t, &f.rd)
		closeFD(t, f)
		if r := await(t, "RawRead", raw); r.err != ErrClosed {
			t.Errorf("RawRead: got %v, want %v", r.err, ErrClosed)
		}
	})
}

// A panic of the user's function must leave the descriptor usable.
func TestRawPanic(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		for name, call := range map[string]func(){
			"RawRead":    func() { _ = f.RawRead(func(uintptr) bool { panic("mine") }) },
			"RawWrite":   func() { _ = f.RawWrite(func(uintptr) bool { panic("mine") }) },
			"RawControl": func() { _ = f.RawControl(func(uintptr) { panic("mine") }) },
		} {
			func() {
				defer func() {
					if got := recover(); got != "mine" {
						t.Errorf("%s: panic is %v, want the function's own", name, got)
					}
				}()
				call()
			}()
		}
		mustWrite(t, peer, "data")
		mustRead(t, f, "data")
		if n, err := f.Write([]byte("x")); n != 1 || err != nil {
			t.Errorf("Write: got %d, %v, want 1, nil", n, err)
		}
		closeFD(t, f) // would wait forever for a reference that was not given back
	})
}

// rawCalls are the ways to lend out the raw descriptor. Each calls fn once.
var rawCalls = map[string]func(f *FD, fn func(fd uintptr)) error{
	"RawControl": (*FD).RawControl,
	"RawRead":    func(f *FD, fn func(uintptr)) error { return f.RawRead(func(fd uintptr) bool { fn(fd); return true }) },
	"RawWrite":   func(f *FD, fn func(uintptr)) error { return f.RawWrite(func(fd uintptr) bool { fn(fd); return true }) },
}

// A use of the raw descriptor that only looks at the socket costs its reads nothing afterwards.
// gRPC's Control, database drivers' Read and net.TCPConn's ReadFrom are such uses.
func TestRawCallThatLooks(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for name, call := range rawCalls {
			f, peer := newPair(t, g.Loop(0), overTCP)
			during := uint32(0)
			if err := call(f, func(fd uintptr) {
				during = f.rd.state.Load()
				_, _ = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
				_, _, _ = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
			}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if during&rawInUse == 0 {
				t.Errorf("state during %s: got %05b, want rawInUse in it", name, during)
			}
			mustWrite(t, peer, "x")
			settle(t, f.loop) // RawRead leaves ready on: a read that is faster than the edge is followed by it
			mustRead(t, f, "x")
			if st := f.rd.state.Load(); st&(ready|shortReadUnreliable|rawInUse) != 0 {
				t.Errorf("state after %s and a short read: got %05b, want drained and nothing else", name, st)
			}
		}
	})
}

// changeLowWater makes a short read prove nothing.
func changeLowWater(t *testing.T) func(fd uintptr) {
	return func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, 2); err != nil {
			t.Errorf("SO_RCVLOWAT: %v", err)
		}
	}
}

// A short read of a socket on which it means nothing any more is not relied on, and a
// reader that relied on one is woken.
func TestRawCallThatChanges(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for name, call := range rawCalls {
			f, peer := newPair(t, g.Loop(0), overTCP)
			read := make(chan error, 1)
			if name != "RawRead" { // which waits for the reader
				testnet.GoBlocked(t, "Read", func() {
					_, err := f.Read(make([]byte, 10))
					read <- err
				})
			}
			if err := call(f, changeLowWater(t)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if st := f.rd.state.Load(); st&shortReadUnreliable == 0 || st&rawInUse != 0 {
				t.Errorf("state after %s: got %05b, want shortReadUnreliable and not rawInUse", name, st)
			}
			mustWrite(t, peer, "xy")
			if name == "RawRead" {
				mustRead(t, f, "xy")
			} else if err := testnet.Receive(t, "Read", read); err != nil {
				t.Errorf("Read after %s: %v", name, err)
			}
		}
	})
}

func TestControl(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, _ net.Conn) {
		used := -1
		if err := f.Control(func(fd int) syscall.Errno { used = fd; return 0 }); err != nil || used != int(f.sysfd) {
			t.Errorf("Control: got %v with descriptor %d, want nil with %d", err, used, f.sysfd)
		}
		if err := f.Control(func(int) syscall.Errno { return syscall.ENOBUFS }); err != syscall.ENOBUFS {
			t.Errorf("Control: got %v, want %v", err, syscall.ENOBUFS)
		}
		if f.exposed.Load() {
			t.Error("Control exposes the descriptor, want not: its callers vouch for what they do")
		}
		if err := f.RawControl(func(fd uintptr) { used = -int(fd) }); err != nil || used != -int(f.sysfd) {
			t.Errorf("RawControl: got %v with descriptor %d, want nil with %d", err, -used, f.sysfd)
		}
		if !f.exposed.Load() {
			t.Error("after RawControl there may be a duplicate, and the descriptor counts as not exposed")
		}
		closeFD(t, f)
		if err := f.Control(func(int) syscall.Errno { t.Error("called"); return 0 }); err != ErrClosed {
			t.Errorf("Control after Close: got %v, want %v", err, ErrClosed)
		}
		if err := f.RawControl(func(uintptr) { t.Error("called") }); err != ErrClosed {
			t.Errorf("RawControl after Close: got %v, want %v", err, ErrClosed)
		}
	})
}

// A descriptor whose raw form the user had reads on correctly although a short
// read may leave something: here because of SO_RCVLOWAT, below which the kernel
// raises no edge.
func TestExposedShortReads(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		if err := f.RawControl(func(uintptr) {}); err != nil {
			t.Fatalf("RawControl: %v", err)
		}
		for range 20 {
			mustWrite(t, peer, "data")
			mustRead(t, f, "data")
		}
	})
}

func TestDup(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		fd, err := f.Dup()
		if err != nil {
			t.Fatalf("Dup: %v", err)
		}
		defer unix.Close(fd)
		if fd == int(f.sysfd) {
			t.Fatalf("Dup: got the descriptor itself, %d", fd)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("F_GETFD: got %#x, %v, want close-on-exec", flags, err)
		}
		closeFD(t, f)
		if n, err := unix.Write(fd, []byte("still open")); n != 10 || err != nil {
			t.Errorf("write to the duplicate: got %d, %v, want 10, nil", n, err)
		}
		// The duplicate keeps the kernel's file alive. It must have been taken out
		// of the loop's epoll all the same.
		settle(t, f.loop)
		before := f.loop.group.Stats()
		mustWrite(t, peer, "an edge")
		mustWrite(t, peer, "another")
		settle(t, f.loop)
		if after := f.loop.group.Stats(); after.Events != before.Events {
			t.Errorf("%d events after Close, want 0", after.Events-before.Events)
		}
		if _, err := f.Dup(); err != ErrClosed {
			t.Errorf("Dup after Close: got %v, want %v", err, ErrClosed)
		}
	})
}

// Urgent data cuts reads short in the middle of the data. None of the bytes
// around it may be left waiting for an edge that doesn't come.
func TestUrgentData(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for round := range 20 {
			a, b := tcpPair(t)
			f := newTestFD(t, g.Loop(0), a, TCP)
			sent := make(chan int, 1)
			go func() {
				defer unix.Close(b)
				rng := rand.New(rand.NewPCG(1, uint64(round)))
				normal := 0
				for range 20 {
					n, _ := unix.Write(b, bytes.Repeat([]byte{'n'}, 1+rng.IntN(50)))
					normal += n
					if rng.IntN(2) == 0 {
						_, _ = unix.SendmsgN(b, []byte{'u'}, nil, nil, unix.MSG_OOB)
					}
					if rng.IntN(4) == 0 {
						time.Sleep(50 * time.Microsecond)
					}
				}
				_, _ = unix.Write(b, []byte("."))
				sent <- normal
			}()
			var got strings.Builder
			p := make([]byte, 40)
			for !strings.HasSuffix(got.String(), ".") {
				r := await(t, "Read", start(func() (int, error) { return f.Read(p) }))
				if r.err != nil {
					t.Fatalf("round %d: Read: %v after %q", round, r.err, got.String())
				}
				got.Write(p[:r.n])
			}
			// An urgent byte that another one follows before it was asked for turns
			// into a normal one (tcp(7), "Out-of-band data"), so some may be there.
			if n, want := strings.Count(got.String(), "n"), <-sent; n != want {
				t.Fatalf("round %d: got %d normal bytes, want %d: %q", round, n, want, got.String())
			}
			closeFD(t, f)
		}
	})
}

// Known to be there: bytes, the urgent one, bytes, all before the first read.
func TestUrgentDataAtOnce(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		a, b := tcpPair(t)
		defer unix.Close(b)
		_, _ = unix.Write(b, []byte("before"))
		if _, err := unix.SendmsgN(b, []byte("!"), nil, nil, unix.MSG_OOB); err != nil {
			t.Fatalf("sending urgent data: %v", err)
		}
		_, _ = unix.Write(b, []byte("after"))
		f := newTestFD(t, g.Loop(0), a, TCP)
		awaitBits(t, f, ready|shortReadUnreliable)
		mustRead(t, f, "before")
		mustRead(t, f, "after")
	})
}

// A unix socket ends a read where ancillary data begins or ends, so that there
// too a short read says nothing.
func TestAncillaryData(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		a, b := unixPair(t)
		defer unix.Close(b)
		f := newTestFD(t, g.Loop(0), a, Plain)
		_, _ = unix.Write(b, []byte("one"))
		if err := unix.Sendmsg(b, []byte("two"), unix.UnixRights(b), nil, 0); err != nil {
			t.Fatalf("sendmsg: %v", err)
		}
		_, _ = unix.Write(b, []byte("three"))
		var got strings.Builder
		p := make([]byte, 64)
		for got.Len() < 11 {
			r := await(t, "Read", start(func() (int, error) { return f.Read(p) }))
			if r.err != nil {
				t.Fatalf("Read: %v", r.err)
			}
			got.Write(p[:r.n])
		}
		if got.String() != "onetwothree" {
			t.Errorf("got %q, want \"onetwothree\"", got.String())
		}
	})
}

func TestNewFDFails(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, err := g.Loop(0).NewFD(int(file.Fd()), Plain)
	var se *os.SyscallError
	if f != nil || !errors.As(err, &se) || se.Syscall != "epoll_ctl" || se.Err != syscall.EPERM {
		t.Errorf("NewFD of a regular file: got %v, %v, want nil, epoll_ctl: %v", f, err, syscall.EPERM)
	}
	if n := g.Stats().Descriptors; n != 0 {
		t.Errorf("descriptors: got %d, want 0", n)
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("the file was closed: %v; it is still the caller's", err)
	}
	g.Close()
	testnet.Receive(t, "the group's end", g.Stopped())
	a, b := unixPair(t)
	defer unix.Close(a)
	defer unix.Close(b)
	if f, err := g.Loop(0).NewFD(a, Plain); f != nil || err != ErrStopped {
		t.Errorf("NewFD on a group that has ended: got %v, %v, want nil, %v", f, err, ErrStopped)
	}
}

// At an urgent mark recv(2) says EAGAIN if a signal is about to be delivered to the
// thread, however much is behind the mark (net/ipv4/tcp.c, tcp_recvmsg_locked). Go's runtime
// preempts goroutines by signals.
func TestUrgentDataAndSignals(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		a, b := tcpPair(t)
		defer unix.Close(b)
		f := newTestFD(t, g.Loop(0), a, TCP)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread := unix.Gettid()
		var stop atomic.Bool
		signalled := start(func() (int, error) {
			for !stop.Load() {
				_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)
			}
			return 0, nil
		})
		for range 3000 {
			if _, err := unix.SendmsgN(b, []byte("!"), nil, nil, unix.MSG_OOB); err != nil {
				t.Fatalf("sending urgent data: %v", err)
			}
			_, _ = unix.Write(b, []byte("."))
			_ = f.SetReadDeadline(time.Now().Add(3 * time.Second))
			var p [10]byte
			for {
				n, err := f.Read(p[:])
				if err != nil {
					t.Errorf("Read: %v, with a byte behind the urgent mark", err)
					break
				}
				if bytes.HasSuffix(p[:n], []byte(".")) {
					break
				}
			}
			if t.Failed() {
				break
			}
		}
		stop.Store(true)
		_ = await(t, "the signals", signalled)
		closeFD(t, f)
	})
}
