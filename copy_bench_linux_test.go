//go:build !percore_net

package percore

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// BenchmarkCopy passes messages on with io.Copy where the kernel can't. Each message is sent after
// the previous one has arrived, so that the copy waits in between. The arm decides the ends that
// the name does not mention. "per answer" makes a separate copy for each message, as an HTTP server
// does. The CPU time covers all ends.
func BenchmarkCopy(b *testing.B) {
	for _, size := range []int{128, 64 << 10, 1 << 20} {
		for _, c := range []struct {
			name string
			ends func(arm func() (near, far net.Conn), nets func() (near, far net.Conn)) (from, to func() (near, far net.Conn))
		}{
			{"to unknown code", func(arm, nets func() (near, far net.Conn)) (from, to func() (near, far net.Conn)) {
				return arm, asUnknown(nets)
			}},
			{"from unknown code", func(arm, nets func() (near, far net.Conn)) (from, to func() (near, far net.Conn)) {
				return asUnknown(nets), arm
			}},
			{"into TLS", func(arm, nets func() (near, far net.Conn)) (from, to func() (near, far net.Conn)) {
				return arm, overTLS(b, arm)
			}},
			{"out of TLS", func(arm, nets func() (near, far net.Conn)) (from, to func() (near, far net.Conn)) {
				return overTLS(b, arm), arm
			}},
		} {
			for _, arm := range transferArms[:2] {
				b.Run(fmt.Sprintf("%s/%dB/%s", c.name, size, arm.name), func(b *testing.B) {
					from, to := c.ends(pairs(b, arm.listen, testnet.TCP4), pairs(b, net.Listen, testnet.TCP4))
					source, feeder := from()
					sink, peer := to()
					go io.Copy(sink, source)
					defer feeder.Close()
					measureMessages(b, size, feeder, peer)
				})
			}
		}
		for _, arm := range transferArms[:2] {
			b.Run(fmt.Sprintf("per answer/%dB/%s", size, arm.name), func(b *testing.B) {
				sink, peer := pairs(b, arm.listen, testnet.TCP4)()
				zeros := readerFunc(func(p []byte) (int, error) { return len(p), nil })
				measureMessages(b, size, writerFunc(func(p []byte) (int, error) {
					n, err := sink.(io.ReaderFrom).ReadFrom(io.LimitReader(zeros, int64(len(p))))
					return int(n), err
				}), peer)
			})
		}
	}
}

// measureMessages times messages from w to r, one at a time.
func measureMessages(b *testing.B, size int, w io.Writer, r io.Reader) {
	b.Helper()
	message, got := noise(size), make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	start := testnet.CPUTime()
	for range b.N {
		wrote := make(chan error, 1)
		go func() {
			_, err := w.Write(message)
			wrote <- err
		}()
		if _, err := io.ReadFull(r, got); err != nil {
			b.Fatal(err)
		}
		if err := <-wrote; err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(testnet.CPUTime()-start)/float64(b.N), "cpu-ns/op")
}
