package zerocopy

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/pipes"
	"github.com/percore/percore/internal/testnet"
)

// onEveryRoute runs test with a source and a destination of each kind, made anew by every call of
// open: bytes written to src.in are to be spliced from src.out to dst.in and read from dst.out.
func onEveryRoute(t *testing.T, test func(t *testing.T, open func() (src, dst link))) {
	for from, newSource := range links {
		for to, newDestination := range links {
			t.Run(from+" to "+to, func(t *testing.T) {
				test(t, func() (src, dst link) { return newSource(t), newDestination(t) })
			})
		}
	}
}

func TestSpliceDeclines(t *testing.T) {
	wantDeclines(t, Splice, features.Splice, []declined{
		{"from a blocking socket", to("tcp"), func(t *testing.T) any { return blocking(t, full("tcp")(t)) }},
		{"from a blocking pipe", to("tcp"), func(t *testing.T) any { return blocking(t, full("pipe")(t)) }},
		{"to a blocking socket", func(t *testing.T) any { return blocking(t, to("tcp")(t)) }, full("tcp")},
		{"to a blocking pipe", func(t *testing.T) any { return blocking(t, to("pipe")(t)) }, full("tcp")},
		{"from a file", to("tcp"), func(t *testing.T) any { return testnet.TempFile(t, content(10)) }},
		{"to a file opened to append", func(t *testing.T) any {
			return open(t, filepath.Join(testnet.ShortTempDir(t), "f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND)
		}, full("tcp")},
		{"to a device", func(t *testing.T) any { return open(t, os.DevNull, os.O_WRONLY) }, full("tcp")},
		{"from datagrams", to("tcp"), func(t *testing.T) any {
			a, b := datagrams(t)
			a.Write(content(10))
			return b
		}},
		{"to datagrams", func(t *testing.T) any { a, _ := datagrams(t); return a }, full("tcp")},
		{"switched off", to("tcp"), full("tcp")},
	})
}

// datagrams returns two files that are connected sockets of datagrams.
func datagrams(t testing.TB) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("socketpair: %v", err)
	}
	a, b = os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// TestSpliceFailsAtTheDestination ends a wait for the destination. The pipe has
// bytes in it then and must not be used again.
func TestSpliceFailsAtTheDestination(t *testing.T) {
	data := content(16 << 20)
	for _, c := range stops {
		t.Run(c.name, func(t *testing.T) {
			pipes.Drain()
			src, dst := links["tcp"](t), links["tcp"](t)
			fed := make(chan struct{})
			go func() {
				src.in.Write(data)
				close(fed)
			}()
			before := countMoved()
			done := begin(t, Splice, dst.in, src.out, -1)
			testnet.Eventually(t, "the destination is full", func() bool {
				return since(before).splice > 0 && pipesInUse() == 1
			})
			c.stop(dst)
			r := testnet.Receive(t, "Splice", done)
			wantStopped(t, r, c.want)
			if open, idle := pipes.Count(); open != 0 {
				t.Errorf("got %d pipes open, %d of them idle, want that one closed", open, idle)
			}
			if c.want == os.ErrDeadlineExceeded {
				wantArrival(t, dst.in, readAll(dst.out), data[:r.n])
			}
			src.out.Close()
			testnet.Receive(t, "the feeder", fed)
		})
	}
}

// TestSpliceWaitsWithoutAPipe has many transfers wait for their sources.
func TestSpliceWaitsWithoutAPipe(t *testing.T) {
	const transfers = 40
	var sources []link
	var done []<-chan transferResult
	dst := links["tcp"](t)
	for range transfers {
		src := links["unix"](t)
		sources = append(sources, src)
		done = append(done, begin(t, Splice, dst.in, src.out, -1))
	}
	testnet.Eventually(t, "none of the transfers, which wait, has a pipe", func() bool { return pipesInUse() == 0 })
	for i, src := range sources {
		src.in.Write([]byte("x"))
		src.in.Close()
		r := testnet.Receive(t, "Splice", done[i])
		wantTransfer(t, r.n, r.handled, r.err, 1)
	}
	wantArrival(t, dst.in, readAll(dst.out), []byte(strings.Repeat("x", transfers)))
}

// TestSpliceUrgentData has splice stop at a mark in the stream, which looks like the stream's end.
func TestSpliceUrgentData(t *testing.T) {
	src, dst := links["tcp"](t), links["tcp"](t)
	sendUrgent(t, src.in)
	n, handled, err := Splice(raw(t, dst.in), raw(t, src.out), -1)
	rest, rerr := io.ReadAll(src.out)
	got := make([]byte, n)
	io.ReadFull(dst.out, got)
	all := string(got) + string(rest)
	if all != "beforeafter" || rerr != nil {
		t.Errorf("got %q by splice (%t, %v) and %q by reading (%v), want \"before\" and \"after\"", got, handled, err, rest, rerr)
	}
	if len(rest) > 0 && err == nil {
		t.Errorf("got no error with %q left, want %v", rest, ErrUnfinished)
	}
	if handled && err != nil && !errors.Is(err, ErrUnfinished) {
		t.Errorf("got %v, want %v", err, ErrUnfinished)
	}
}
