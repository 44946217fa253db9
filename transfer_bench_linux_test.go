//go:build !percore_net

package percore

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// The benchmarks of transfers have their peers in another process, so that the CPU time they report
// is only the transfer's. Each has three arms: net, percore, and percore with a reader whose type
// is hidden. The last one shows what a copy through a buffer costs in the same place.

func init() { children["bench peer"] = benchPeer }

// benchPeer is the other process. It takes orders, a line each:
//
//	sink ADDRESS         connect, and read until the end
//	source ADDRESS SIZE  connect, and write pieces of SIZE bytes until that fails
func benchPeer() {
	done := make(chan struct{})
	running := 0
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); running++ {
		var what, address string
		var size int
		fmt.Sscan(orders.Text(), &what, &address, &size)
		c, err := net.Dial("tcp", address)
		if err != nil {
			exitChild("dialing", err)
		}
		go func() {
			defer func() { c.Close(); done <- struct{}{} }()
			if what == "sink" {
				io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
				return
			}
			for piece := make([]byte, size); ; {
				if _, err := c.Write(piece); err != nil {
					return
				}
			}
		}()
	}
	for range running {
		<-done
	}
}

// transferArms are the arms to compare.
var transferArms = []struct {
	name   string
	listen testnet.ListenFunc
	hide   bool
}{
	{"net", net.Listen, false},
	{"percore", Listen, false},
	{"percore copying", Listen, true},
}

// benchConn returns a connection with a peer that carries out an order.
func benchConn(b *testing.B, listen testnet.ListenFunc, peer *testnet.ChildProcess, order string, size int) net.Conn {
	b.Helper()
	ln, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	fmt.Fprintln(peer.Stdin, order, ln.Addr(), size)
	c, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// measureTransfers times transfers that add up to b.N times size bytes.
func measureTransfers(b *testing.B, size int64, transfer func() (int64, error)) {
	b.Helper()
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	start := testnet.CPUTime()
	for total := size * int64(b.N); total > 0; {
		n, err := transfer()
		if n == 0 || err != nil {
			b.Fatalf("got %d, %v, with %d bytes to go", n, err, total)
		}
		total -= n
	}
	b.StopTimer()
	b.ReportMetric(float64(testnet.CPUTime()-start)/float64(b.N), "cpu-ns/op")
}

func hidden(r io.Reader, hide bool) io.Reader {
	if hide {
		return struct{ io.Reader }{r}
	}
	return r
}

// BenchmarkSendFile sends a file as net/http does.
func BenchmarkSendFile(b *testing.B) {
	for _, size := range []int64{4 << 10, 64 << 10, 1 << 20, 64 << 20} {
		f := testnet.TempFile(b, nil)
		if err := f.Truncate(size); err != nil {
			b.Fatal(err)
		}
		for _, arm := range transferArms {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, arm.name), func(b *testing.B) {
				c := benchConn(b, arm.listen, testnet.StartChild(b, "bench peer"), "sink", 0)
				measureTransfers(b, size, func() (int64, error) {
					f.Seek(0, io.SeekStart)
					return io.Copy(c, io.LimitReader(hidden(f, arm.hide), size))
				})
			})
		}
	}
}

// BenchmarkSplice copies from one connection to another, for peers that write in pieces of various
// sizes.
func BenchmarkSplice(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, arm := range transferArms {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, arm.name), func(b *testing.B) {
				peer := testnet.StartChild(b, "bench peer")
				from := benchConn(b, arm.listen, peer, "source", size)
				to := benchConn(b, arm.listen, peer, "sink", 0)
				measureTransfers(b, int64(size), func() (int64, error) {
					return io.Copy(to, io.LimitReader(hidden(from, arm.hide), int64(size)*int64(b.N)))
				})
			})
		}
	}
}
