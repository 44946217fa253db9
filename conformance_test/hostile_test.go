package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// An echoServer sends each connection's bytes back until the connection ends. A failing connection
// affects no other connection; a failing listener ends the server.
type echoServer struct {
	ln     net.Listener
	served atomic.Int64 // connections accepted so far
	open   atomic.Int64 // connections being served now

	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
}

// startEcho serves connections on ln. When the test ends, it closes the server and all its
// connections; the server must end then.
func startEcho(t testing.TB, ln net.Listener) *echoServer {
	s := &echoServer{ln: ln, conns: make(map[net.Conn]bool)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("the server's Accept: got %v, want a connection", err)
				}
				return
			}
			s.add(c)
			wg.Go(func() {
				defer s.remove(c)
				io.Copy(onlyWriter{c}, onlyReader{c})
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		s.closeAll()
		testnet.Within(t, "the server ending", wg.Wait)
	})
	return s
}

func (s *echoServer) add(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = true
	s.served.Add(1)
	s.open.Add(1)
}

func (s *echoServer) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Close()
	delete(s.conns, c)
	s.open.Add(-1)
}

// closeAll closes the connections being served.
func (s *echoServer) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// roundTrip sends a message over an echoing connection and checks the answer.
func roundTrip(c net.Conn, message []byte) error {
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(message)
		wrote <- err
	}()
	got := make([]byte, len(message))
	_, err := io.ReadFull(c, got)
	if err := errors.Join(err, <-wrote); err != nil {
		return err
	}
	if !bytes.Equal(got, message) {
		return fmt.Errorf("got %s, want %s", digest(got), digest(message))
	}
	return nil
}

// startWitness keeps a well-behaved connection busy until the test ends. Hostile peers on other
// connections must not disturb it. The function it returns waits for some more round trips.
func startWitness(t testing.TB, ln net.Listener) (goesOn func()) {
	c := testnet.Dial(t, ln)
	stop := make(chan struct{})
	var trips atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if err := roundTrip(c, pattern(1+i%5000)); err != nil {
				t.Errorf("the witness was disturbed: %v", err)
				return
			}
			trips.Add(1)
		}
	})
	t.Cleanup(func() {
		close(stop)
		testnet.Within(t, "the witness ending", wg.Wait)
	})
	return func() {
		seen := trips.Load()
		testnet.Eventually(t, "the witness going on", func() bool { return t.Failed() || trips.Load() >= seen+3 })
	}
}

// A hostilePeer is a client that misbehaves. It gets a new connection, and closes everything that
// it holds when done is closed.
type hostilePeer struct {
	name  string
	conns int
	act   func(c net.Conn, done <-chan struct{})
}

var hostilePeers = []hostilePeer{
	{"vanishes at once", 100, func(c net.Conn, _ <-chan struct{}) {}},
	{"resets at once", 100, func(c net.Conn, _ <-chan struct{}) { resetOnClose(c) }},
	{"says something and resets", 100, func(c net.Conn, _ <-chan struct{}) {
		resetOnClose(c)
		io.WriteString(c, "never mind")
	}},
	{"leaves the answer unread", 100, func(c net.Conn, _ <-chan struct{}) {
		c.Write(pattern(100_000))
	}},
	{"half-closes and waits for the end", 50, func(c net.Conn, _ <-chan struct{}) {
		c.(interface{ CloseWrite() error }).CloseWrite()
		io.Copy(io.Discard, c)
	}},
	{"half-closes before it reads", 20, func(c net.Conn, _ <-chan struct{}) {
		c.Write(pattern(10_000))
		c.(interface{ CloseWrite() error }).CloseWrite()
		io.Copy(io.Discard, c)
	}},
	{"stops reading and stays", 20, func(c net.Conn, done <-chan struct{}) {
		c.(interface{ CloseRead() error }).CloseRead()
		io.WriteString(c, "talking to a wall")
		<-done
	}},
	{"says nothing", 50, func(c net.Conn, done <-chan struct{}) { <-done }},
	{"sends a byte at a time", 20, func(c net.Conn, done <-chan struct{}) {
		for {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
				if _, err := c.Write([]byte{'.'}); err != nil {
					return
				}
			}
		}
	}},
	{"never reads", 10, func(c net.Conn, done <-chan struct{}) {
		c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		c.Write(pattern(muchData)) // until the server's answers block it
		<-done
	}},
	{"never reads, then resets", 10, func(c net.Conn, done <-chan struct{}) {
		resetOnClose(c)
		c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		c.Write(pattern(muchData))
	}},
}

// resetOnClose makes Close send a reset, if the protocol has one.
func resetOnClose(c net.Conn) {
	if l, ok := c.(lingerer); ok {
		l.SetLinger(0)
	}
}

// TestHostilePeers runs all of them at once. The witness and new clients must not notice, and the
// server must release the connections of peers that are gone.
func TestHostilePeers(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		ln := testnet.Listen(t, e.listen, kind)
		server := startEcho(t, ln)
		witnessGoesOn := startWitness(t, ln)
		done := make(chan struct{})
		var stayers, leavers sync.WaitGroup
		for _, peer := range hostilePeers {
			wg := &leavers
			if peer.stays() {
				wg = &stayers
			}
			for range peer.conns {
				wg.Go(func() {
					c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
					if err != nil {
						t.Errorf("a peer that %s: %v", peer.name, err)
						return
					}
					defer c.Close()
					peer.act(c, done)
				})
			}
		}
		testnet.Within(t, "peers that leave", leavers.Wait)
		witnessGoesOn()
		if err := roundTrip(testnet.Dial(t, ln), pattern(100_000)); err != nil {
			t.Errorf("a newcomer among hostile peers: %v", err)
		}
		close(done)
		testnet.Within(t, "peers that stay", stayers.Wait)
		// Only the witness and the newcomer are left.
		testnet.Eventually(t, "the server getting rid of its connections", func() bool { return server.open.Load() <= 2 })
		witnessGoesOn()
	})
}

// stays reports whether the peer keeps its connection until it is told to go.
func (p hostilePeer) stays() bool {
	switch p.name {
	case "stops reading and stays", "says nothing", "sends a byte at a time", "never reads":
		return true
	}
	return false
}

// TestHostileFlood opens connections that send no requests, again and again, while the
// backlog is not emptied. Then it expects service.
func TestHostileFlood(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		const conns = 500
		ln := testnet.Listen(t, e.listen, kind)
		var flood []net.Conn
		for range conns {
			flood = append(flood, testnet.Dial(t, ln))
		}
		for _, c := range flood {
			resetOnClose(c)
			c.Close()
		}
		server := startEcho(t, ln) // accepts only now
		startWitness(t, ln)()
		testnet.Eventually(t, "the server getting rid of the flood", func() bool { return server.open.Load() <= 1 })
	})
}
