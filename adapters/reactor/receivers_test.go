package reactor

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
)

// attachMany gives a server connections that are all on one loop, and returns them with their peers.
func attachMany(t *testing.T, s *Server, n int) (conns []*Conn, peers []net.Conn) {
	t.Helper()
	if onGoroutines && runtime.GOMAXPROCS(0) > 1 {
		t.Skip("connections get loops in turn here: run it with GOMAXPROCS=1")
	}
	conns, peers = attachGroup(t, s, n)
	t.Cleanup(func() { end(t, s) }) // before the pairs': no other code may close a connection of the server's
	l := conns[0].loop
	testnet.Eventually(t, "all are open", func() bool { return countOpen(l) == n })
	return conns, peers
}

// attachGroup gives a server connections of a group of one loop.
func attachGroup(t *testing.T, s *Server, n int) (conns []*Conn, peers []net.Conn) {
	t.Helper()
	group, err := loop.NewGroup(loop.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	lc := percore.ListenConfig{Group: group}
	ln := testnet.Listen(t, func(network, address string) (net.Listener, error) {
		return lc.Listen(context.Background(), network, address)
	}, testnet.TCP4)
	for len(conns) < n {
		pc, peer := testnet.Connect(t, ln)
		c, err := s.Attach(pc, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		conns, peers = append(conns, c), append(peers, peer)
	}
	return conns, peers
}

// busyLoop gives a server a connection on a loop that is busy until release is called, and another on
// one that isn't.
func busyLoop(t *testing.T, s *Server) (busy, free *Conn, busyPeer, freePeer net.Conn, release func()) {
	t.Helper()
	if onGoroutines && runtime.GOMAXPROCS(0) == 1 {
		t.Skip("there is one loop here: run it with GOMAXPROCS=2")
	}
	var both []*Conn
	var peers []net.Conn
	for range 2 { // on goroutines they get loops in turn
		c, p := attachGroup(t, s, 1)
		both, peers = append(both, c...), append(peers, p...)
	}
	if both[0].loop == both[1].loop {
		t.Fatal("both connections are on one loop")
	}
	gate, begun := make(chan bool), make(chan bool)
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(func() { release(); end(t, s) }) // before the pairs': no other code may close a connection of the server's
	both[0].loop.Submit(func() { close(begun); <-gate })
	testnet.Receive(t, "the function that blocks the loop", begun)
	return both[0], both[1], peers[0], peers[1], release
}

// A peer whose messages go to all is held up while a loop has yet to send them, with little in memory,
// and goes on then. All that it has sent comes, in order.
func TestBroadcastHoldsSender(t *testing.T) {
	testnet.NoLeaks(t)
	var s *Server
	s, _ = serve(t, &handler{data: func(c *Conn, p []byte) int {
		s.Broadcast(p, nil)
		return len(p)
	}})
	_, free, busyPeer, freePeer, release := busyLoop(t, s)
	go io.Copy(io.Discard, freePeer)
	sent := make(chan error, 1)
	text := numbers(8 << 20) // more than the sockets hold
	go func() {
		_, err := freePeer.Write(text)
		sent <- err
	}()
	testnet.Eventually(t, "the sender is held", func() bool { return free.asked.Load()&askWalks != 0 })
	if waiting, most := s.broadcasts.bytes.Load(), int64(4*readBytes); waiting > most {
		t.Errorf("%d bytes wait, want %d at most", waiting, most)
	}
	select {
	case err := <-sent:
		t.Fatalf("nothing held the sender up: %v", err)
	default:
	}
	release()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(busyPeer, got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("got %d bytes, %v, %d of them right, want %d", n, err, commonPrefix(got, text), len(text))
	}
	if err := testnet.Receive(t, "the sender's end", sent); err != nil {
		t.Error(err)
	}
}

// Broadcasts of a program's own goroutines are refused, whole, once too much waits for a loop. All that
// were taken come.
func TestBroadcastRefused(t *testing.T) {
	testnet.NoLeaks(t)
	const limit = 256 << 10
	s, _ := serve(t, &handler{}, Config{WriteHardLimit: limit})
	busy, free, busyPeer, freePeer, release := busyLoop(t, s)
	const size = 1000
	taken := 0
	for ; s.Broadcast(make([]byte, size), nil) == nil; taken++ {
		if taken > limit/size {
			t.Fatalf("%d broadcasts of %d bytes wait, want %d bytes at most", taken, size, limit)
		}
	}
	if taken < limit/size/4 {
		t.Errorf("%d broadcasts of %d bytes were taken, want more", taken, size)
	}
	if err := s.Broadcast(make([]byte, size), nil); err != ErrWriteBufferFull {
		t.Errorf("got %v, want %v", err, ErrWriteBufferFull)
	}
	release()
	for _, peer := range []net.Conn{busyPeer, freePeer} {
		if n, err := io.ReadFull(peer, make([]byte, taken*size)); err != nil {
			t.Errorf("a peer got %d bytes, %v, want %d", n, err, taken*size)
		}
	}
	// A peer may have read what its connection doesn't know to be sent yet.
	testnet.Eventually(t, "all is sent", func() bool { return busy.Unsent()+free.Unsent() == 0 })
	testnet.Eventually(t, "none waits", func() bool { return s.Broadcast(make([]byte, 2*limit), nil) == nil })
	for _, peer := range []net.Conn{busyPeer, freePeer} {
		if n, err := io.ReadFull(peer, make([]byte, 2*limit)); err != nil {
			t.Errorf("a peer got %d bytes, %v, want a long message", n, err)
		}
	}
}

// The server's Close doesn't wait behind calls for many connections, and drops them; Shutdown lets them
// go first.
func TestCloseDropsBroadcasts(t *testing.T) {
	testnet.NoLeaks(t)
	for _, shutdown := range []bool{false, true} {
		const conns, calls = 2 * batchConns, 50
		ended := make(chan error, conns)
		s, _ := serve(t, &handler{close: func(_ *Conn, err error) { ended <- err }}, Config{WriteHardLimit: 64 << 20})
		all, peers := attachMany(t, s, conns)
		called := 0 // by the loop
		shut := make(chan error, 1)
		all[0].loop.Submit(func() { // so that at most a turn of them is called before
			for range calls {
				s.Each(func(*Conn) { called++ })
			}
			s.Broadcast([]byte("bye"), nil)
			if !shutdown {
				s.Close()
				return
			}
			go func() { shut <- s.Shutdown(context.Background()) }()
			for s.closing.Load() == 0 {
				runtime.Gosched()
			}
		})
		text := ""
		if shutdown {
			text = "bye"
		}
		for _, peer := range peers {
			peer.SetDeadline(time.Now().Add(testnet.HangTimeout))
			if got, err := io.ReadAll(peer); string(got) != text || err != nil {
				t.Fatalf("Shutdown %t: a peer got %q, %v, want %q", shutdown, got, err, text)
			}
			peer.Close()
		}
		for range conns {
			if err := testnet.Receive(t, "Close", ended); err != ErrServerClosed {
				t.Errorf("got %v, want %v", err, ErrServerClosed)
			}
		}
		if least := conns * calls; shutdown && called != least {
			t.Errorf("Shutdown: a function was called %d times, want %d", called, least)
		} else if !shutdown && called > batchConns {
			t.Errorf("Close: a function was called %d times, want no more than in the batch before, %d", called, batchConns)
		}
		if shutdown {
			if err := testnet.Receive(t, "Shutdown", shut); err != nil {
				t.Error(err)
			}
		}
		if n := s.broadcasts.bytes.Load(); n != 0 {
			t.Errorf("%d bytes are still counted", n)
		}
	}
}

// A function for many connections leaves the loop to others between its turns.
func TestTurns(t *testing.T) {
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{})
	const n = 3 * batchConns
	attachMany(t, s, n)
	called := 0 // by the loop
	between := make(chan int, 1)
	all := make(chan bool, 1)
	s.Each(func(c *Conn) {
		if called++; called == 1 {
			c.loop.Submit(func() { between <- called })
		}
		if called == n {
			all <- true
		}
	})
	testnet.Receive(t, "the last call", all)
	if got := testnet.Receive(t, "a function in between", between); got == n {
		t.Errorf("a function of the loop waited for all %d calls of Each, want some", n)
	}
}

// A callback that writes a short message to many connections takes one buffer, and each of them is sent
// to before long; other writes come in their order.
func TestManyReceivers(t *testing.T) {
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{})
	conns, peers := attachMany(t, s, 3*batchConns)
	message := bytes.Repeat([]byte("m"), 100)
	testnet.Eventually(t, "the end of other tests' buffers", func() bool { return percore.ReadStats().Pool.BuffersInUse == 0 })
	buffers := make(chan int, 1)
	conns[0].loop.Submit(func() {
		b := pool.Get(len(message))
		copy(b.Bytes(), message)
		for _, c := range conns {
			c.WriteShared(b)
		}
		b.Release()
		buffers <- percore.ReadStats().Pool.BuffersInUse
		for _, c := range conns[:10] {
			c.Write([]byte("more"))
		}
	})
	if n := testnet.Receive(t, "the writes", buffers); n != 1 {
		t.Errorf("got %d buffers for one message, want 1", n)
	}
	for i, peer := range peers {
		want := message
		if i < 10 {
			want = append(bytes.Clone(message), "more"...)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("peer %d: got %q, %v, want %q", i, got, err, want)
		}
	}
}

// Broadcast tells whom it misses, and those stay open if the program wants them to.
func TestBroadcastTellsMissed(t *testing.T) {
	testnet.NoLeaks(t)
	for _, tells := range []bool{false, true} {
		room := make(chan *Conn, 1)
		var h Handler = &handler{open: smallBuffer}
		if tells {
			h = &told{handler: handler{open: smallBuffer}, room: func(c *Conn) { room <- c }}
		}
		s, _ := serve(t, h, Config{WriteHardLimit: 256 << 10})
		c, peer := attach(t, s)
		peer.(*net.TCPConn).SetReadBuffer(socketBytes)
		testnet.Eventually(t, "it is open", func() bool { return countOpen(c.loop) == 1 })
		missed := make(chan *Conn, 1)
		for n := 0; len(missed) == 0; n++ {
			s.Broadcast(make([]byte, 64<<10), func(c *Conn) {
				select {
				case missed <- c:
				default:
				}
			})
			awaitWalks(t, s) // so that each broadcast is done before the next
			if open := countOpen(c.loop); open != 1 || n > 1<<10 {
				t.Fatalf("told %t: %d connections are open after %d broadcasts of 64 KiB", tells, open, n)
			}
		}
		if got := <-missed; got != c {
			t.Errorf("told %t: got %v, want %v", tells, got, c)
		}
		if !tells {
			c.Abort()
			continue
		}
		go io.Copy(io.Discard, peer)
		if got := testnet.Receive(t, "Writable", room); got != c {
			t.Errorf("Writable: got %v, want %v", got, c)
		}
	}
}
