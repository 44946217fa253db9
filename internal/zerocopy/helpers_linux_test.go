package zerocopy

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/pipes"
	"github.com/percore/percore/internal/testnet"
)

// castagnoli is the polynomial that processors have an instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// content returns n bytes that repeat nowhere soon.
func content(n int) []byte {
	b := make([]byte, n)
	state := uint32(n) + 1
	for i := range b {
		state = state*1664525 + 1013904223
		b[i] = byte(state >> 24)
	}
	return b
}

// A link is a way from one place to another: bytes that are written to in can be read from out.
type link struct {
	in  io.WriteCloser
	out io.ReadCloser
}

// links are the kinds of links, by name.
var links = map[string]func(t testing.TB) link{
	"tcp": func(t testing.TB) link {
		a, b := testnet.Pair(t, net.Listen, testnet.TCP4)
		return link{a, b}
	},
	"unix": func(t testing.TB) link {
		a, b := testnet.Pair(t, net.Listen, testnet.Unix)
		return link{a, b}
	},
	"pipe": func(t testing.TB) link {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatalf("pipe: %v", err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return link{w, r}
	},
}

// raw returns the RawConn of a file or connection.
func raw(t testing.TB, v any) syscall.RawConn {
	t.Helper()
	c, err := v.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatalf("SyscallConn of %T: %v", v, err)
	}
	return c
}

func seek(t testing.TB, f *os.File, offset int64) {
	t.Helper()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		t.Fatalf("Seek: %v", err)
	}
}

func offset(t testing.TB, f *os.File) int64 {
	t.Helper()
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		t.Fatalf("Seek: %v", err)
	}
	return at
}

// An arrival is all that a reader got until the end.
type arrival struct {
	n   int64
	sum uint32
	err error
}

func (a arrival) String() string {
	return fmt.Sprintf("%d bytes with checksum %08x, %v", a.n, a.sum, a.err)
}

// arrivalOf is the arrival of data, whole.
func arrivalOf(data []byte) arrival {
	return arrival{int64(len(data)), crc32.Checksum(data, castagnoli), nil}
}

// readAll reads from r until it ends, on a goroutine of its own.
func readAll(r io.Reader) <-chan arrival {
	done := make(chan arrival, 1)
	go func() {
		sum := crc32.New(castagnoli)
		n, err := io.CopyBuffer(sum, struct{ io.Reader }{r}, make([]byte, 256<<10))
		done <- arrival{n, sum.Sum32(), err}
	}()
	return done
}

// wantArrival closes the near end of a link and fails the test unless data was the bytes that arrived.
func wantArrival(t testing.TB, near io.Closer, arriving <-chan arrival, data []byte) {
	t.Helper()
	near.Close()
	if got, want := testnet.Receive(t, "the reader", arriving), arrivalOf(data); got != want {
		t.Errorf("arrived: got %v, want %v", got, want)
	}
}

// wantTransfer fails the test unless a transfer ended as it should.
func wantTransfer(t testing.TB, n int64, handled bool, err error, want int64) {
	t.Helper()
	if n != want || !handled || err != nil {
		t.Errorf("got %d, handled %t, %v, want %d, handled", n, handled, err, want)
	}
}

// A declined is a pair of ends between which a transfer is declined.
type declined struct {
	name     string
	dst, src func(t *testing.T) any
}

// to opens a destination, and full a source with content(10).
func to(kind string) func(t *testing.T) any {
	return func(t *testing.T) any { return links[kind](t).in }
}

func full(kind string) func(t *testing.T) any {
	return func(t *testing.T) any {
		l := links[kind](t)
		l.in.Write(content(10))
		return l.out
	}
}

// wantDeclines fails the test unless a transfer is declined in all cases, and moves nothing.
func wantDeclines(t *testing.T, transfer transferFunc, feature *features.Feature, cases []declined) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "switched off" {
				defer feature.Force(false)()
			}
			dst, src := c.dst(t), c.src(t)
			before := countMoved()
			n, handled, err := transfer(raw(t, dst), raw(t, src), 10)
			if n != 0 || handled || err == nil {
				t.Errorf("got %d, handled %t, %v, want it declined, with a reason", n, handled, err)
			}
			if got := since(before); got != (moved{}) {
				t.Errorf("counted: got %+v, want nothing moved", got)
			}
			wantUntouched(t, src)
		})
	}
}

// wantUntouched fails the test unless content(10) can still be read from a source, if anything can.
func wantUntouched(t testing.TB, src any) {
	t.Helper()
	got := make([]byte, 10)
	_, err := io.ReadFull(src.(io.Reader), got)
	switch {
	case errors.Is(err, os.ErrClosed), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EISDIR):
	case err != nil || string(got) != string(content(10)):
		t.Errorf("left at the source: got %q, %v, want all of it", got, err)
	}
}

// open opens a file until the test ends.
func open(t testing.TB, path string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// stops end a transfer that waits for its destination, a TCP connection.
var stops = []struct {
	name string
	stop func(dst link)
	want error
}{
	{"the deadline passes", func(dst link) { dst.in.(net.Conn).SetWriteDeadline(longAgo) }, os.ErrDeadlineExceeded},
	{"the destination is closed", func(dst link) { dst.in.Close() }, net.ErrClosed},
	{"the peer resets", func(dst link) {
		dst.out.(*net.TCPConn).SetLinger(0)
		dst.out.Close()
	}, syscall.ECONNRESET},
}

// wantStopped fails the test unless a transfer has moved some bytes, and failed at its destination.
func wantStopped(t testing.TB, r transferResult, want error) {
	t.Helper()
	why, ok := r.err.(*Error)
	if !r.handled || r.n == 0 || !ok || why.End != Destination || why.Err != want {
		t.Errorf("got %+v, want some bytes and %v, of the destination", r, want)
	}
}

// sendUrgent sends bytes, an urgent one, and more, and closes the connection.
func sendUrgent(t testing.TB, c io.WriteCloser) {
	t.Helper()
	for _, part := range []struct {
		text  string
		flags int
	}{{"before", 0}, {"!", unix.MSG_OOB}, {"after", 0}} {
		var err error
		cerr := raw(t, c).Control(func(fd uintptr) { err = unix.Send(int(fd), []byte(part.text), part.flags) })
		if cerr != nil || err != nil {
			t.Fatalf("send: %v, %v", cerr, err)
		}
	}
	c.Close()
}

// moved is how many bytes went each way.
type moved struct{ sendfile, splice, copied uint64 }

func countMoved() moved {
	return moved{features.SendfileBytes.Load(), features.SpliceBytes.Load(), features.CopiedBytes.Load()}
}

// since returns how many bytes went each way since before.
func since(before moved) moved {
	now := countMoved()
	return moved{now.sendfile - before.sendfile, now.splice - before.splice, now.copied - before.copied}
}

// longAgo is a deadline that has passed.
var longAgo = monotime.LongAgo

// A transferResult is the result of SendFile and Splice.
type transferResult struct {
	n       int64
	handled bool
	err     error
}

// A transferFunc is SendFile or Splice.
type transferFunc func(dst, src syscall.RawConn, limit int64) (n int64, handled bool, err error)

// begin makes a transfer that blocks, and returns where its result arrives.
func begin(t testing.TB, transfer transferFunc, dst, src any, limit int64) <-chan transferResult {
	t.Helper()
	out, in := raw(t, dst), raw(t, src)
	done := make(chan transferResult, 1)
	testnet.GoBlocked(t, "a transfer", func() {
		n, handled, err := transfer(out, in, limit)
		done <- transferResult{n, handled, err}
	})
	return done
}

// pipesInUse returns how many pipes are lent.
func pipesInUse() int {
	open, idle := pipes.Count()
	return open - idle
}
