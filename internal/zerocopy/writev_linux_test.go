package zerocopy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// streamPair returns the ends of a connected stream: a non-blocking descriptor to
// write to, with a small buffer, and package net's to read from.
func streamPair(t testing.TB) (fd int, peer net.Conn) {
	t.Helper()
	client, server := testnet.Pair(t, net.Listen, testnet.TCP4)
	f, err := client.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	fd = int(f.Fd()) // blocking from now on; Writev must not care
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10); err != nil {
		t.Fatal(err)
	}
	return fd, server
}

// drain reads n bytes from c in the background.
func drain(c net.Conn, n int) <-chan []byte {
	ch := make(chan []byte, 1)
	go func() {
		p := make([]byte, n)
		n, _ := io.ReadFull(c, p)
		ch <- p[:n]
	}()
	return ch
}

// writeAll calls Writev until all is written, waiting whenever the kernel says so.
func writeAll(fd int, v *[][]byte) (n int64, err error) {
	for {
		wrote, err := Writev(fd, v)
		n += wrote
		if err != syscall.EAGAIN {
			return n, err
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err != nil && err != unix.EINTR {
			return n, err
		}
	}
}

// shapes returns slices of random sizes, of which many are empty.
func shapes(rng *rand.Rand, count, sizeMax int) (v [][]byte, all []byte) {
	for range count {
		p := make([]byte, max(0, rng.IntN(sizeMax+1)-rng.IntN(sizeMax+1)))
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		v = append(v, p)
		all = append(all, p...)
	}
	return v, all
}

func TestWritev(t *testing.T) {
	for _, on := range []bool{true, false} {
		defer features.Writev.Force(on)()
		for _, test := range []struct{ count, sizeMax int }{
			{0, 0}, {3, 0}, {1, 10}, {16, 256}, {1023, 3}, {1024, 1}, {1025, 1}, {1100, 100}, {5000, 50}, {7, 1 << 20}, {100, 100_000},
		} {
			t.Run(fmt.Sprintf("writev=%t/%d slices to %d bytes", on, test.count, test.sizeMax), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(test.count), uint64(test.sizeMax)))
				v, all := shapes(rng, test.count, test.sizeMax)
				fd, peer := streamPair(t)
				received := drain(peer, len(all))
				whole, left := slices.Clone(v), v
				bytesBefore, callsBefore := features.WritevBytes.Load(), features.WritevCalls.Load()
				n, err := writeAll(fd, &left)
				if n != int64(len(all)) || err != nil {
					t.Errorf("got %d, %v, want %d", n, err, len(all))
				}
				if got := testnet.Receive(t, "the bytes", received); !bytes.Equal(got, all) {
					t.Error("the bytes that arrived are not those that were written")
				}
				if len(all) > 0 && (len(left) > 0 || slices.ContainsFunc(v, func(p []byte) bool { return p != nil })) {
					t.Errorf("got %d slices left, want none, and those that were there nil", len(left))
				}
				if again := bytes.Join(whole, nil); !bytes.Equal(again, all) {
					t.Error("the bytes of the slices were changed")
				}
				if got := features.WritevBytes.Load() - bytesBefore; got != uint64(len(all)) {
					t.Errorf("got %d bytes counted, want %d", got, len(all))
				}
				filled := 0
				for _, p := range whole {
					if len(p) > 0 {
						filled++
					}
				}
				leastCalls := filled
				if on {
					leastCalls = (filled + iovMax - 1) / iovMax
				}
				calls := int(features.WritevCalls.Load() - callsBefore)
				if calls < leastCalls || len(all) < 16<<10 && calls != leastCalls {
					t.Errorf("got %d system calls for %d slices, want %d", calls, filled, leastCalls)
				}
			})
		}
	}
}

func TestWritevAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's sync.Pool allocates: run it without -race")
	}
	fd, peer := streamPair(t)
	go io.Copy(io.Discard, peer)
	p := make([]byte, 4096)
	slices := make([][]byte, 16)
	if n := testing.AllocsPerRun(500, func() {
		for i := range slices {
			slices[i] = p[i*256 : (i+1)*256]
		}
		v := slices
		if _, err := writeAll(fd, &v); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// Written bytes are not kept alive by the list that told the kernel of them.
func TestWritevKeepsNothing(t *testing.T) {
	fd, _ := streamPair(t)
	v := [][]byte{make([]byte, 10), make([]byte, 20), make([]byte, 30)}
	if _, err := Writev(fd, &v); err != nil {
		t.Fatal(err)
	}
	vec := iovecsPool.Get().(*iovecs)
	defer iovecsPool.Put(vec)
	for i, iov := range vec.list[:cap(vec.list)] {
		if iov.Base != nil {
			t.Errorf("entry %d of the list points to %d bytes still", i, iov.Len)
		}
	}
}
