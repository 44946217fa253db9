//go:build !percore_net

package httpadapter

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/shared/detached"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestDetachedBudget measures the memory of an answer that waits, with its connection, and counts
// goroutines. The clients are raw descriptors, or, over HTTP/2, one connection.
func TestDetachedBudget(t *testing.T) {
	const (
		n   = 3000
		few = 300 // to warm up: the runtime keeps all goroutines that it has ever had at once
	)
	needBudget(t, n)
	for _, arm := range []struct {
		name         string
		heapBytesMax float64
		streams      bool // of one connection of HTTP/2
		begun        bool // the header was sent
	}{
		{"HTTP/1.1", 650, false, true},
		{"HTTP/1.1 long poll", 650, false, false},
		{"HTTP/2", 640, true, true},
	} {
		t.Run(arm.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			var mu sync.Mutex
			streams := make([]*Answer, 0, n+few)
			h := func(w http.ResponseWriter, r *http.Request) {
				if arm.begun {
					w.Header().Set("Content-Type", "text/event-stream")
					_ = http.NewResponseController(w).Flush()
				}
				_ = Detach(w, r, func(s *Answer) {
					mu.Lock()
					defer mu.Unlock()
					streams = append(streams, s)
				})
			}
			s, stop := serveOnTwo(t, h, n)
			defer stop()
			open := opener(t, s.addr, arm.streams, arm.begun)
			await := func(n int) {
				testnet.Eventually(t, "the answers being detached", func() bool { return s.Stats().Detached == n })
			}
			open(few)
			await(few)
			goroutines, before := runtime.NumGoroutine(), testnet.HeapBytes()
			open(n)
			await(few + n)
			testnet.Eventually(t, "as few goroutines as with few answers", func() bool { return runtime.NumGoroutine() <= goroutines })
			each := arm.heapBytesMax + 1
			for i := 0; i < 20 && each > arm.heapBytesMax; i++ { // a buffer of 64 KiB that is in use is 20 bytes of each
				time.Sleep(10 * time.Millisecond)
				each = float64(int64(testnet.HeapBytes()-before)) / n
			}
			t.Logf("%.0f bytes of heap per answer that waits", each)
			if each > arm.heapBytesMax {
				t.Errorf("got %.0f bytes of heap per answer that waits, want at most %.0f", each, arm.heapBytesMax)
			}
			for _, stream := range streams {
				io.WriteString(stream, "event")
				stream.Close()
			}
			await(0)
		})
	}
}

// TestDetachedUnread measures what a client can make a server hold by answers that it doesn't read.
func TestDetachedUnread(t *testing.T) {
	const (
		n            = 30
		heapBytesMax = 2 * detached.DefaultLimit
	)
	needBudget(t, n)
	for _, overHTTP2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %t", overHTTP2), func(t *testing.T) {
			testnet.NoLeaks(t)
			streams := make(chan *Answer, n)
			h := func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				_ = Detach(w, r, func(s *Answer) { streams <- s })
			}
			s, stop := serveOnTwo(t, h, n)
			defer stop()
			opener(t, s.addr, overHTTP2, true)(n)
			testnet.Eventually(t, "the answers being detached", func() bool { return s.Stats().Detached == n })
			before := testnet.HeapBytes()
			var all []*Answer
			for range n {
				all = append(all, <-streams)
			}
			event, last := make([]byte, 1000), time.Now()
			testnet.Eventually(t, "that no client takes any more", func() bool {
				for _, stream := range all {
					_, err := stream.Write(event)
					for ; err == nil; _, err = stream.Write(event) {
						stream.Flush()
						last = time.Now()
					}
					if err != ErrSlowClient {
						t.Fatal(err)
					}
				}
				return time.Since(last) > 100*time.Millisecond
			})
			each := float64(int64(testnet.HeapBytes()-before)) / n
			t.Logf("%.0f bytes of heap per answer that isn't read", each)
			if each > heapBytesMax {
				t.Errorf("got %.0f bytes of heap per answer that isn't read, want at most %d", each, heapBytesMax)
			}
		})
	}
}

// TestHandOverDetached: a connection whose answer waits stays, and moves after the answer's end.
func TestHandOverDetached(t *testing.T) {
	streams := make(chan *Answer, 1)
	f := startOurs(t, func(w http.ResponseWriter, r *http.Request) {
		_ = Detach(w, r, func(s *Answer) { streams <- s })
	}, nil)
	next := startSuccessor(t, named("second"))
	c := f.dial()
	c.send(request("/1"))
	s := testnet.Receive(t, "an Answer", streams)
	f.awaitDetached(1)
	moved := make(chan error, 1)
	go func() { moved <- f.handOver(next.give) }()
	testnet.Eventually(t, "HandOver", f.server.isLeaving)
	io.WriteString(s, "first")
	s.Close()
	if got := c.answer(); got != "first" {
		t.Errorf("got %q", got)
	}
	if err := testnet.Receive(t, "HandOver", moved); err != nil {
		t.Errorf("HandOver: %v", err)
	}
	c.wantGet("/2", "second/2")
}

// BenchmarkBroadcast sends an event to each of a thousand clients, and waits until all have it.
func BenchmarkBroadcast(b *testing.B) {
	const clients, event = 1000, 100
	for _, arm := range arms {
		b.Run(arm.name, func(b *testing.B) {
			var mu sync.Mutex
			var streams []*Answer
			joined := make(chan bool, clients)
			addr := benchServerOf(b, arm.serve, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
				_ = Detach(w, r, func(s *Answer) {
					mu.Lock()
					defer mu.Unlock()
					streams = append(streams, s)
					joined <- true
				})
			})
			got := make(chan int, clients)
			for range clients {
				c, err := net.Dial(addr.Network(), addr.String())
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				io.WriteString(c, request("/"))
				<-joined
				go func() {
					p := make([]byte, 4096)
					for n := 0; ; {
						m, err := c.Read(p)
						if err != nil {
							return
						}
						for n += bytes.Count(p[:m], []byte("!")); n > 0; n-- {
							got <- 1
						}
					}
				}()
			}
			data := append(bytes.Repeat([]byte("."), event-1), '!')
			b.ReportAllocs()
			for b.Loop() {
				for _, s := range streams {
					s.Write(data)
					s.Flush()
				}
				for range clients {
					<-got
				}
			}
			for _, s := range streams {
				s.Close()
			}
		})
	}
}

// TestDetachAbortWithoutWindow: over HTTP/2 the end of an answer waits for the client's window.
func TestDetachAbortWithoutWindow(t *testing.T) {
	streams, ends := make(chan *Answer, 1), make(chan error, 1)
	protocols := clearHTTP2(false)
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		_ = Detach(w, r, func(s *Answer) {
			s.OnEnd(func(err error) { ends <- err })
			streams <- s
		})
	}, func(f *fixture) { f.srv.Protocols = protocols })
	const initialWindowSize = 4
	p := frames.NewPeer(t, testnet.Dial(t, f.ln), initialWindowSize, 0)
	p.Request(1, true).Flush()
	s := testnet.Receive(t, "an Answer", streams)
	io.WriteString(s, "hello")
	s.Close()
	for !strings.HasPrefix(p.Next(), "headers 1 ") { // behind which the sender waits
	}
	s.Abort(nil)
	if err := testnet.Receive(t, "OnEnd", ends); err != errAborted {
		t.Errorf("OnEnd got %v, want %v", err, errAborted)
	}
}

// opener returns a function that sends n requests to addr: each on a connection of its own, or all on
// one of HTTP/2.
func opener(t *testing.T, addr net.Addr, streams, answered bool) func(n int) {
	if streams {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		p := frames.NewPeer(t, c)
		go io.Copy(io.Discard, c)
		id := uint32(1)
		return func(n int) {
			for range n {
				p.Request(id, true)
				id += 2
			}
			p.Flush()
			p.Out = nil
		}
	}
	return rawClients(t, addr, answered)
}
