package reactor

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// Everything at once, for the race detector: goroutines write to and close connections that their
// loops serve, clients come, stall, reset and go, and the server shuts down in the middle of it.
func TestStress(t *testing.T) {
	testnet.NoLeaks(t)
	rounds, clients := 6, 30
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		var conns sync.Map
		s, dial := serve(t, &handler{
			open:  func(c *Conn) { conns.Store(c, true) },
			close: func(c *Conn, err error) { conns.Delete(c) },
			data: func(c *Conn, p []byte) int {
				switch p[0] % 8 {
				case 0:
					c.Go(func() { c.Write(make([]byte, 100)) })
				case 1:
					c.AfterFunc(time.Millisecond, func() { c.Write(make([]byte, 10)) })
				case 2:
					c.Loop().Submit(func() { c.Write(make([]byte, 10)) })
				default:
					c.Write(p)
				}
				return 1 + rand.IntN(len(p))
			},
		}, Config{WriteHighWaterMark: 8 << 10, WriteHardLimit: 1 << 20, Workers: 2, WaitingMax: 4,
			IdleTimeout: time.Second, ReadTimeout: time.Second, Log: silent.Log})
		stop := make(chan bool)
		var others, working sync.WaitGroup
		for range 3 {
			others.Go(func() {
				b := pool.Get(3000)
				defer b.Release()
				for {
					for c := range conns.Range {
						select {
						case <-stop:
							return
						default:
						}
						disturb(c.(*Conn), s, b)
					}
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
				}
			})
		}
		for i := range clients {
			c := dial()
			working.Go(func() { stressClient(c, i) })
		}
		if round%2 == 0 {
			working.Wait()
		}
		s.Shutdown(t.Context())
		close(stop)
		others.Wait()
		working.Wait()
		if n := s.Stats().Conns; n != 0 {
			t.Errorf("got %d connections after Shutdown, want none", n)
		}
	}
}

func disturb(c *Conn, s *Server, b *pool.Buffer) {
	switch rand.IntN(40) {
	case 0:
		c.Abort()
	case 1:
		c.Close()
	case 2:
		c.CloseWrite()
	case 3:
		c.Go(func() { c.Write([]byte("from a goroutine")) })
	case 4:
		s.Broadcast([]byte("to all"), nil)
	case 5:
		s.Each(func(c *Conn) { c.Write([]byte("each")) })
	case 6:
		c.RemoteAddr()
		s.Stats()
	case 7:
		c.Write(make([]byte, 20<<10))
	case 8:
		c.Pause()
		go c.Resume()
	case 9:
		c.Unsent()
	default:
		c.WriteShared(b)
		c.Write([]byte("x"))
	}
}

func stressClient(c net.Conn, i int) {
	defer c.Close()
	go func() {
		for range 20 {
			if _, err := c.Write(make([]byte, rand.IntN(5000))); err != nil {
				return
			}
		}
		c.(*net.TCPConn).CloseWrite()
	}()
	switch i % 4 {
	case 0: // never reads
		time.Sleep(20 * time.Millisecond)
	case 1:
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
	default:
		io.Copy(io.Discard, c)
	}
}
