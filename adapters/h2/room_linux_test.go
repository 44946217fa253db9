//go:build !percore_net

package h2

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// roomFixture is a server with a few places, whose clients have addresses of their own. Streams with the
// method GET are detached, and others are served until release is closed.
type roomFixture struct {
	*fixture
	moved   chan *moved
	release chan struct{}
}

func newRoomFixture(t *testing.T, max int) *roomFixture {
	testnet.NoLeaks(t)
	f := &roomFixture{&fixture{t: t}, make(chan *moved, 1000), make(chan struct{})}
	f.start(func(network, address string) (net.Listener, error) {
		config := percore.ListenConfig{MaxConns: max}
		return config.Listen(context.Background(), network, address)
	}, f, Config{})
	return f
}

// Accept implements Handler.
func (f *roomFixture) Accept(c *Conn, r *Request) StreamHandler {
	if r.Method != "GET" {
		return HandlerFunc(func(*Stream, *Request) { <-f.release }).Accept(c, r)
	}
	return &mover{serve: func(m *mover) {
		_ = m.stream.Send(Message{Status: 200})
		next := m.move(func(s *Stream) {
			_ = s.Send(Message{End: true})
			s.Finish()
		})
		if err := next.stream.Err(); err != nil { // it had ended before
			next.Cancelled(err)
		}
		f.moved <- next
	}}
}

// dialFrom returns a connection with an address of 127.0.0.0/8, which ends with ctx.
func (f *roomFixture) dialFrom(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.DialContext(ctx, "tcp4", f.l.Addr().String())
	if err == nil {
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		context.AfterFunc(ctx, func() { c.Close() })
	}
	return c, err
}

func (f *roomFixture) peerFrom(address string) *frames.Peer {
	f.t.Helper()
	c, err := f.dialFrom(f.t.Context(), address)
	if err != nil {
		f.t.Fatal(err)
	}
	return frames.NewPeer(f.t, c)
}

// watch opens a stream that is detached.
func (f *roomFixture) watch(p *frames.Peer, id uint32) *moved {
	f.t.Helper()
	p.Request(id, true).Flush().Want(fmt.Sprintf("headers %d :status=200", id))
	return testnet.Receive(f.t, "a stream that is detached", f.moved)
}

// TestRoomDetached: of two connections of a peer with detached streams only, one makes room for another
// client. One that has another stream as well doesn't.
func TestRoomDetached(t *testing.T) {
	f := newRoomFixture(t, 3)
	busy := f.peerFrom("127.0.0.1")
	rest := f.watch(busy, 1)
	busy.Headers(3, true, ":method", "POST", ":scheme", "http", ":path", "/", ":authority", "x").Flush()
	testnet.Eventually(t, "a handler", func() bool { return f.server.Stats().Streams == 2 })
	var all [2]*frames.Peer
	var streams [2][2]*moved
	for i := range all {
		all[i] = f.peerFrom("127.0.0.1")
		streams[i] = [2]*moved{f.watch(all[i], 1), f.watch(all[i], 3)}
	}
	late := f.peerFrom("127.0.0.2").Request(1, true).Flush()
	left, leaves := 0, 1
	var err error
	select {
	case err = <-streams[1][0].cancelled:
	case err = <-streams[0][0].cancelled:
		left, leaves = 1, 0
	}
	if testnet.Receive(t, "the end", streams[leaves][1].cancelled); !errors.Is(err, accepting.ErrShare) {
		t.Errorf("got %v of the stream, want %v", err, accepting.ErrShare)
	}
	for _, m := range streams[leaves] {
		m.stream.Finish()
	}
	resets := []string{all[leaves].Next(), all[leaves].Next()}
	slices.Sort(resets)
	if want := []string{"reset 1 ENHANCE_YOUR_CALM", "reset 3 ENHANCE_YOUR_CALM"}; !slices.Equal(resets, want) {
		t.Errorf("got the frames %q, want %q", resets, want)
	}
	all[leaves].Want("goaway 2147483647 NO_ERROR", "goaway 3 NO_ERROR", "end")
	all[leaves].Conn.Close()
	late.Want("headers 1 :status=200")
	streams[left][1].stream.Resume()
	all[left].Want(`data 3 "" end`)
	close(f.release)
	busy.Want("reset 3 INTERNAL_ERROR")
	f.server.Close()
	for _, m := range []*moved{rest, streams[left][0], testnet.Receive(t, "the late stream", f.moved)} {
		testnet.Receive(t, "the end of a stream", m.cancelled)
		m.stream.Finish()
	}
}

// TestRoomDetachedFlood: one address takes all places with streams that are detached, and finished now
// and then. Others get in anyway, detach streams too, and reset them.
func TestRoomDetachedFlood(t *testing.T) {
	const max, visits = 8, 20
	f := newRoomFixture(t, max)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	var greedy, visitors, finishers sync.WaitGroup
	for range 2 {
		finishers.Go(func() {
			for m := range f.moved {
				if rand.N(4) == 0 {
					go m.stream.Resume()
				}
				finishers.Go(func() {
					select {
					case <-m.cancelled:
						m.stream.Finish()
					case <-done: // it was finished
					}
				})
			}
		})
	}
	open := func(address string) (*frames.Peer, error) {
		c, err := f.dialFrom(ctx, address)
		if err != nil {
			return nil, err
		}
		p := frames.NewPeer(t, c)
		for id := range uint32(5) {
			p.Request(2*id+1, true)
		}
		_, err = c.Write(p.Out)
		p.Out = nil
		return p, err
	}
	for range 2 * max {
		greedy.Go(func() {
			for ctx.Err() == nil {
				p, err := open("127.0.0.1")
				if err != nil {
					continue // it makes room already
				}
				for frame := p.Next(); frame != "end" && !strings.HasPrefix(frame, "error"); frame = p.Next() {
				}
				p.Conn.Close()
			}
		})
	}
	for i := range 4 {
		visitors.Go(func() {
			for range visits {
				p, err := open(fmt.Sprintf("127.0.0.%d", i+2))
				if err != nil {
					t.Errorf("a visitor: %v", err)
					return
				}
				frame := p.Next()
				for ; !strings.HasPrefix(frame, "headers "); frame = p.Next() {
					if frame == "end" || strings.HasPrefix(frame, "error") {
						t.Errorf("a visitor got the frame %s", frame)
						return
					}
				}
				_, _ = p.Conn.Write(p.Reset(rand.N(uint32(5))*2+1, Cancel).Out)
				p.Conn.Close()
			}
		})
	}
	visitors.Wait()
	stop()
	greedy.Wait()
	testnet.Eventually(t, "the streams' end", func() bool {
		st := f.server.Stats()
		return st.Streams == 0 && st.Conns == 0
	})
	f.server.Close()
	close(f.moved)
	close(done)
	finishers.Wait()
}
