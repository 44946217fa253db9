package h2

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/percore/percore/internal/testnet/frames"
)

// TestNothingWaits: whatever a client does with windows, priorities and resets, all comes that its
// windows allow. A sender that was forgotten would stay where it is until something else happens, so
// the client does nothing else until all has come.
func TestNothingWaits(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(sendPieces), Config{Priorities: ServePriorities})
		for range 3 {
			newAllower(t, f).play(60)
		}
	})
}

// sendPieces answers with as many bytes as the path says, in pieces of a length that it says, too.
func sendPieces(s *Stream, r *Request) {
	var total, piece int
	_, _ = fmt.Sscanf(r.Path, "/%d/%d", &total, &piece)
	if s.Send(Message{Status: 200}) != nil {
		return
	}
	buf := make([]byte, piece)
	for at := 0; at < total; at += piece {
		part := buf[:min(piece, total-at)]
		for i := range part {
			part[i] = pieceByte(s.ID(), at+i)
		}
		var err error
		if rand.IntN(2) == 0 {
			_, err = s.Write(part)
		} else if err = s.Send(Message{Body: part, Hold: true}); err == nil {
			err = s.Flush()
		}
		if err != nil {
			return
		}
		clear(part)
	}
	_ = s.Send(Message{End: true, Hold: true})
}

// pieceByte is a byte of sendPieces' answer.
func pieceByte(id uint32, at int) byte { return byte(id*31) + byte(at) + byte(at>>8)*7 }

// An allower is a client that knows what its windows allow.
type allower struct {
	*frames.Peer
	conn, initial int
	streams       map[uint32]*allowed // that have not ended
	lastID        uint32
}

type allowed struct{ got, total, window int }

func newAllower(t *testing.T, f *fixture) *allower {
	initial := 1 << rand.IntN(18)
	return &allower{Peer: f.peer(4, uint32(initial)), conn: 65535, initial: initial, streams: map[uint32]*allowed{}}
}

// play takes steps, and opens all windows at the end.
func (a *allower) play(steps int) {
	for range steps {
		for range 1 + rand.IntN(6) {
			a.step()
		}
		a.Flush()
		a.receiveAll()
	}
	for id, s := range a.streams {
		a.open(id, s, 1<<21)
	}
	a.conn += 1 << 30
	a.Window(0, 1<<30).Flush()
	if a.receiveAll(); len(a.streams) > 0 {
		a.T.Errorf("%d streams have not ended though all windows are open", len(a.streams))
	}
	_ = a.Conn.Close()
}

// step adds something at random.
func (a *allower) step() {
	id := a.lastID + 2 - 2*uint32(rand.IntN(1+len(a.streams)))
	if a.lastID == 0 {
		id = 1
	}
	s := a.streams[id]
	switch n := rand.IntN(10); {
	case n < 3:
		a.request()
	case n < 5 && a.conn < 1<<20:
		n := 1 + rand.IntN(1<<rand.IntN(18))
		a.conn += n
		a.Window(0, uint32(n))
	case n < 6:
		priority := fmt.Sprintf("u=%d, i=?%d", rand.IntN(8), rand.IntN(2))
		a.Frame(0x10, 0, 0, append(binary.BigEndian.AppendUint32(nil, id), priority...)) // PRIORITY_UPDATE
	case n < 7:
		a.change(1 << rand.IntN(18))
	case s == nil:
	case n < 9:
		a.open(id, s, 1+rand.IntN(1<<rand.IntN(18)))
	default:
		a.Reset(id, Cancel)
		delete(a.streams, id)
	}
}

func (a *allower) request() {
	a.lastID += 2
	if a.lastID == 2 {
		a.lastID = 1
	}
	total := rand.IntN(1 << rand.IntN(18))
	piece := max(1+rand.IntN(1<<rand.IntN(18)), total/1000)
	a.streams[a.lastID] = &allowed{total: total, window: a.initial}
	a.Headers(a.lastID, true, ":method", "GET", ":scheme", "http", ":authority", "x", ":path", fmt.Sprintf("/%d/%d", total, piece),
		"priority", fmt.Sprintf("u=%d, i=?%d", rand.IntN(8), rand.IntN(2)))
}

func (a *allower) open(id uint32, s *allowed, n int) {
	s.window += n
	a.Window(id, uint32(n))
}

// change changes the initial window.
func (a *allower) change(initial int) {
	for _, s := range a.streams {
		s.window += initial - a.initial
	}
	a.initial = initial
	a.Frame(frames.Settings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, uint32(initial)))
}

// receiveAll receives until nothing more is allowed.
func (a *allower) receiveAll() {
	for a.expects() {
		var h [9]byte
		if _, err := io.ReadFull(a.Conn, h[:]); err != nil {
			a.T.Fatalf("%v, with %d of the connection's window left", err, a.conn)
		}
		p := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(a.Conn, p); err != nil {
			a.T.Fatal(err)
		}
		a.received(h[3], h[4], binary.BigEndian.Uint32(h[5:]), p)
	}
}

// expects reports whether something more must come.
func (a *allower) expects() bool {
	for _, s := range a.streams {
		if s.got == s.total || s.window > 0 && a.conn > 0 {
			return true
		}
	}
	return false
}

func (a *allower) received(typ, flags byte, id uint32, p []byte) {
	if typ == frames.GoAway || typ == frames.RSTStream {
		a.T.Fatalf("stream %d: got a frame of type %d: %q", id, typ, p)
	}
	if typ != frames.Data {
		return
	}
	if a.conn -= len(p); a.conn < 0 {
		a.T.Fatal("got more than the connection's window")
	}
	s := a.streams[id]
	if s == nil {
		return // it was reset
	}
	for i, b := range p {
		if b != pieceByte(id, s.got+i) {
			a.T.Fatalf("stream %d: got a wrong byte at %d", id, s.got+i)
		}
	}
	s.window -= len(p)
	s.got += len(p)
	if flags&frames.End != 0 {
		if delete(a.streams, id); s.got != s.total {
			a.T.Fatalf("stream %d: got %d bytes of %d", id, s.got, s.total)
		}
	}
}
