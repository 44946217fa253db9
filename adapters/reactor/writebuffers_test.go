package reactor

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// Slices that are written together stay together while other goroutines write.
func TestWriteBuffersTogether(t *testing.T) {
	testnet.NoLeaks(t)
	const writers, messages = 4, 200
	for _, size := range []int{1, 5000} {
		_, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
			for k := range writers {
				id := byte('a' + k)
				go func() {
					for range messages {
						c.WriteBuffers([]byte{'<', id}, nil, bytes.Repeat([]byte{id}, size), []byte{'>'})
					}
				}()
			}
			return len(p)
		}})
		c := dial()
		c.Write([]byte("x"))
		message := make([]byte, size+3)
		for n := range writers * messages {
			if _, err := io.ReadFull(c, message); err != nil {
				t.Fatal(err)
			}
			id := message[1]
			if want := "<" + string(bytes.Repeat([]byte{id}, size+1)) + ">"; string(message) != want {
				t.Fatalf("message %d is torn: %q", n, message[:min(len(message), 80)])
			}
		}
	}
}

// A random mixture of all ways to write, on the loop and off it, arrives as it was written, at a peer
// whose socket is full most of the time.
func TestWaysToWrite(t *testing.T) {
	testnet.NoLeaks(t)
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		random := rand.New(rand.NewPCG(uint64(seed), 7))
		s, _ := serve(t, &handler{open: smallBuffer})
		c, peer := attach(t, s)
		peer.(*net.TCPConn).SetReadBuffer(socketBytes)
		var want []byte
		program := func() {
			for range random.IntN(30) {
				var p [][]byte
				for range 1 + random.IntN(40) {
					q := make([]byte, random.IntN(1<<random.IntN(14)))
					for i := range q {
						q[i] = byte(random.Uint32())
					}
					p = append(p, q)
				}
				whole := bytes.Join(p, nil)
				want = append(want, whole...)
				switch random.IntN(3) {
				case 0:
					c.Write(whole)
				case 1:
					b := pool.Get(len(whole))
					copy(b.Bytes(), whole)
					c.WriteShared(b)
					b.Release()
				default:
					if n, err := c.WriteBuffers(p...); n != len(whole) || err != nil {
						t.Errorf("seed %d: WriteBuffers: got %d, %v, want %d", seed, n, err, len(whole))
					}
				}
				for _, q := range p {
					clear(q) // none is kept
				}
				clear(whole)
			}
		}
		written := make(chan bool)
		go func() {
			defer close(written)
			for range 3 {
				done := make(chan bool)
				c.AfterFunc(0, func() { // a callback: writes are collected
					program()
					close(done)
				})
				<-done
				program()
			}
			c.Close()
		}()
		got, err := io.ReadAll(peer)
		<-written
		if !bytes.Equal(got, want) || err != nil {
			t.Errorf("seed %d: got %d bytes, %v, want %d (the same up to %d)", seed, len(got), err, len(want), commonPrefix(got, want))
		}
		peer.Close()
	}
}
