package zerocopy

import (
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/monotime"
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

// wantArrival closes the near end of a link and fails the test unless data was
// the bytes that arrived.
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

// wantDeclined fails the test unless a transfer was declined.
func wantDeclined(t testing.TB, n int64, handled bool, err error) {
	t.Helper()
	if n != 0 || handled || err == nil {
		t.Errorf("got %d, handled %t, %v, want it declined, with a reason", n, handled, err)
	}
}

// since returns how many bytes went each way since before.
func since(before Stats) Stats {
	now := ReadStats()
	return Stats{
		SendfileBytes: now.SendfileBytes - before.SendfileBytes,
		SpliceBytes:   now.SpliceBytes - before.SpliceBytes,
		CopiedBytes:   now.CopiedBytes - before.CopiedBytes,
	}
}

// longAgo is a deadline that has passed.
var longAgo = monotime.LongAgo

// A transferResult is the result of SendFile and Splice.
type transferResult struct {
	n       int64
	handled bool
	err     error
}

// begin makes a transfer that blocks, and returns where its result arrives.
func begin(t testing.TB, what string, transfer func() (int64, bool, error)) <-chan transferResult {
	t.Helper()
	done := make(chan transferResult, 1)
	testnet.GoBlocked(t, what, func() {
		n, handled, err := transfer()
		done <- transferResult{n, handled, err}
	})
	return done
}

// pipesInUse returns how many pipes are lent.
func pipesInUse() int {
	s := ReadStats()
	return s.PipesOpen - s.PipesIdle
}
