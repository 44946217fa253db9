package percore

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

// benchmarkListeners are the listeners to compare.
var benchmarkListeners = []struct {
	name   string
	listen testnet.ListenFunc
}{
	{"net", func(network, address string) (net.Listener, error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // which makes every call more expensive, and percore doesn't ask for it
		return lc.Listen(context.Background(), network, address)
	}},
	{"percore", Listen},
}

// BenchmarkWriteBuffers writes 16 slices of 256 bytes with one call, to a peer that
// reads as fast as it can. "written" is the control: the same bytes in one slice.
func BenchmarkWriteBuffers(b *testing.B) {
	const slices, size = 16, 256
	for _, l := range benchmarkListeners {
		server, client := testnet.Pair(b, l.listen, testnet.TCP4)
		go io.Copy(io.Discard, client)
		data := make([]byte, slices*size)
		v := make(net.Buffers, slices)
		write := func(v *net.Buffers) error {
			_, err := v.WriteTo(server)
			return err
		}
		if c, ok := server.(*Conn); ok {
			write = func(v *net.Buffers) error {
				_, err := c.WriteBuffers(v)
				return err
			}
		}
		b.Run(l.name, func(b *testing.B) {
			b.SetBytes(slices * size)
			b.ReportAllocs()
			var left net.Buffers
			for b.Loop() {
				for i := range v {
					v[i] = data[i*size : (i+1)*size]
				}
				left = v
				if err := write(&left); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(l.name+"/written", func(b *testing.B) {
			b.SetBytes(slices * size)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.Write(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// readPooled reads up to n bytes into a buffer from the pool, which it takes when there is
// something to read.
func readPooled(c *Conn, n int) (*pool.Buffer, error) {
	var b *pool.Buffer
	read, err := c.ReadReady(func() []byte {
		b = pool.Get(n)
		return b.Bytes()
	}, func() {
		b.Release()
		b = nil
	})
	if err != nil {
		return nil, err
	}
	b.SetLen(read)
	return b, nil
}

// BenchmarkReadReady answers 128 bytes with the same bytes. It reads into a permanent slice, or
// into a buffer from the pool that exists only while there are bytes.
func BenchmarkReadReady(b *testing.B) {
	const size = 128
	for _, l := range benchmarkListeners {
		server, client := testnet.Pair(b, l.listen, testnet.TCP4)
		ping := make([]byte, size)
		run := func(name string, answer func() error) {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				done := make(chan error, 1)
				go func() {
					for {
						if err := answer(); err != nil {
							done <- err
							return
						}
					}
				}()
				for b.Loop() {
					if _, err := client.Write(ping); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(client, ping); err != nil {
						b.Fatal(err)
					}
				}
				_ = server.SetReadDeadline(time.Unix(1, 0))
				<-done
				_ = server.SetReadDeadline(time.Time{})
			})
		}
		p := make([]byte, 4<<10)
		run(l.name+"/Read", func() error {
			n, err := server.Read(p)
			if err == nil {
				_, err = server.Write(p[:n])
			}
			return err
		})
		if c, ok := server.(*Conn); ok {
			run(l.name+"/ReadReady", func() error {
				buffer, err := readPooled(c, 4<<10)
				if err == nil {
					_, err = c.Write(buffer.Bytes())
					buffer.Release()
				}
				return err
			})
		}
	}
	if n := pool.ReadStats().BuffersInUse; n != 0 {
		b.Errorf("got %d buffers in use at the end, want none", n)
	}
}
