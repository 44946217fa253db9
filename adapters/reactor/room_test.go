package reactor

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// relay passes the bytes of two connections, each the context of the other, on to each other, as fast
// as they are taken.
type relay struct {
	t      *testing.T
	mark   int
	paused atomic.Int64 // times
	most   atomic.Int64 // bytes that waited
	ends   chan error
}

func (r *relay) Open(c *Conn) { smallBuffer(c) }

func (r *relay) Data(c *Conn, p []byte) int {
	other := c.User().(*atomic.Pointer[Conn])
	to := other.Load()
	if to == nil { // its other side comes
		c.Pause()
		if other.Load() != nil {
			c.Resume() // it came before the pause
		}
		return 0
	}
	if _, err := to.Write(p); err != nil {
		c.Abort()
		return len(p)
	}
	if n := to.Unsent(); n > r.mark {
		r.paused.Add(1)
		if r.most.Load() < int64(n) {
			r.most.Store(int64(n)) // of one loop's connections
		}
		c.Pause()
		if to.Unsent() <= r.mark {
			c.Resume()
		}
	}
	return len(p)
}

func (r *relay) Writable(c *Conn) {
	if from := c.User().(*atomic.Pointer[Conn]).Load(); from != nil {
		from.Resume()
	}
}

func (r *relay) Close(c *Conn, err error) {
	if other := c.User().(*atomic.Pointer[Conn]).Load(); other != nil {
		other.Close()
	}
	r.ends <- err
}

// A proxy runs at the pace of the slower side, in both directions, with bounded memory: neither is read
// until the proxy has paused the other side, and then everything arrives.
func TestProxy(t *testing.T) {
	testnet.NoLeaks(t)
	const mark = 64 << 10
	stream := numbers(8 << 20)
	for _, back := range []bool{false, true} {
		r := &relay{t: t, mark: mark, ends: make(chan error, 10)}
		s, err := New(r, Config{WriteHighWaterMark: mark, WriteHardLimit: 4 * mark})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		upstream := testnet.Listen(t, net.Listen, testnet.TCP4)
		dialed, err := percore.Dial("tcp4", upstream.Addr().String()) // on a loop of another group
		if err != nil {
			t.Fatal(err)
		}
		server, err := upstream.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted, client := testnet.Pair(t, percore.Listen, testnet.TCP4)
		var there, here atomic.Pointer[Conn] // of accepted, and of dialed
		a, err := s.Attach(accepted, nil, &there)
		if err != nil {
			t.Fatal(err)
		}
		from, to := client, server
		if back {
			from, to = server, client
		}
		to.(*net.TCPConn).SetReadBuffer(socketBytes)
		sent := make(chan error, 1)
		go func() {
			_, err := from.Write(stream)
			from.Close()
			sent <- err
		}()
		here.Store(a)
		b, err := s.Attach(dialed, nil, &here)
		if err != nil {
			t.Fatal(err)
		}
		there.Store(b)
		a.Resume()
		testnet.Eventually(t, "the sender is held up", func() bool { return r.paused.Load() > 0 })
		got, err := io.ReadAll(to)
		if !bytes.Equal(got, stream) || err != nil {
			t.Errorf("back %t: got %d bytes, %v, the same up to %d, want %d", back, len(got), err, commonPrefix(got, stream), len(stream))
		}
		if err := testnet.Receive(t, "the sender", sent); err != nil {
			t.Errorf("back %t: the sender: %v", back, err)
		}
		to.Close()
		for range 2 {
			testnet.Receive(t, "Close", r.ends)
		}
		// Writable may be under way when more has been written, and its Resume lets one more call of Data in.
		const most = mark + 2*readBytes
		if n := r.most.Load(); n > most {
			t.Errorf("back %t: got %d bytes that wait, want %d at most", back, n, most)
		}
	}
}

// A Data that waits, however many bytes there are, doesn't end the connection, and the peer is held up.
func TestPauseWithFullBuffer(t *testing.T) {
	testnet.NoLeaks(t)
	const bufferMax = 10_000
	stream := numbers(8 << 20)
	var waits atomic.Int64
	var most int
	var got bytes.Buffer
	conns, all := make(chan *Conn, 1), make(chan bool, 1)
	taking := false // owned by the loop
	_, dial := serve(t, &handler{open: func(c *Conn) { c.sock.conn.SetReadBuffer(socketBytes); conns <- c }, data: func(c *Conn, p []byte) int {
		most = max(most, len(p))
		if !taking {
			waits.Add(1)
			if c.Pause(); len(p) < bufferMax {
				c.Resume() // with more
			}
			return 0
		}
		if got.Write(p); got.Len() == len(stream) {
			all <- true
		}
		return len(p)
	}}, Config{ReadBufferMax: bufferMax})
	peer := dial()
	peer.(*net.TCPConn).SetWriteBuffer(socketBytes)
	sent := make(chan error, 1)
	go func() { _, err := peer.Write(stream); sent <- err }()
	c := testnet.Receive(t, "Open", conns)
	testnet.Eventually(t, "reading is paused", func() bool { return c.asked.Load()&(askPause|askOffer) == askPause })
	if len(sent) > 0 {
		t.Error("the peer was not held up")
	}
	c.Loop().Submit(func() { taking = true; c.Resume() })
	testnet.Receive(t, "all bytes", all)
	if err := testnet.Receive(t, "the peer", sent); err != nil || !bytes.Equal(got.Bytes(), stream) {
		t.Errorf("got %d bytes (%v), the same up to %d, want %d", got.Len(), err, commonPrefix(got.Bytes(), stream), len(stream))
	}
	if most > bufferMax+readBytes {
		t.Errorf("got %d bytes in a call, want %d at most", most, bufferMax+readBytes)
	}
}

// Writable, or Close, follows whenever Unsent has returned more than WriteHighWaterMark, however many
// write.
func TestUnsentPromise(t *testing.T) {
	testnet.NoLeaks(t)
	const mark, writers, pieces, piece = 4 << 10, 4, 300, 3000
	for _, shared := range []bool{false, true} {
		var mu sync.Mutex
		rooms := make(chan bool) // closed by the next Writable; guarded by mu
		room := func() chan bool {
			mu.Lock()
			defer mu.Unlock()
			return rooms
		}
		conns := make(chan *Conn, 1)
		h := &told{room: func(c *Conn) {
			mu.Lock()
			defer mu.Unlock()
			close(rooms)
			rooms = make(chan bool)
		}}
		h.open = func(c *Conn) { smallBuffer(c); conns <- c }
		s, dial := serve(t, h, Config{WriteHighWaterMark: mark})
		peer := dial()
		peer.(*net.TCPConn).SetReadBuffer(socketBytes)
		c := testnet.Receive(t, "Open", conns)
		var writing sync.WaitGroup
		failed := make(chan error, writers)
		for range writers {
			writing.Go(func() {
				for range pieces {
					next := room()
					if c.Unsent() > mark {
						<-next
					}
					var err error
					if shared {
						err = waysToWrite["WriteShared"](s, c, make([]byte, piece))
					} else {
						_, err = c.Write(make([]byte, piece))
					}
					if err != nil {
						failed <- fmt.Errorf("shared %t: %w", shared, err)
						return
					}
				}
			})
		}
		if n, err := io.CopyN(io.Discard, peer, writers*pieces*piece); err != nil {
			t.Errorf("shared %t: got %d bytes, %v", shared, n, err)
		}
		testnet.Within(t, "the writers", writing.Wait)
		for len(failed) > 0 {
			t.Error(<-failed)
		}
		// The peer may have the last bytes before the server knows that they are sent.
		testnet.Eventually(t, fmt.Sprintf("shared %t: nothing is unsent when the peer has all", shared), func() bool { return c.Unsent() == 0 })
	}
}
