//go:build !percore_net

package h2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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

// peerFrom dials from an address of 127.0.0.0/8.
func (f *roomFixture) peerFrom(address string) *frames.Peer {
	f.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.DialContext(f.t.Context(), "tcp4", f.l.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	f.t.Cleanup(func() { c.Close() })
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
