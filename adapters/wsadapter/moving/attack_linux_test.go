//go:build !percore_net

package moving

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/internal/testnet"
)

// leave runs a HandOver of the Group with a function in place of package handover's.
func (p *place) leave(ctx context.Context, give func(batch []handover.CarriedConn, more bool) error) <-chan error {
	gone := make(chan error, 1)
	go func() { gone <- carrier{p.group}.HandOver(ctx, func(net.Conn) bool { return true }, give) }()
	return gone
}

// mustLeave is leave to the end, and checks its error.
func (p *place) mustLeave(want error, give func(batch []handover.CarriedConn, more bool) error) {
	p.t.Helper()
	if err := testnet.Receive(p.t, "HandOver", p.leave(p.t.Context(), give)); err != want {
		p.t.Errorf("HandOver: got %v, want %v", err, want)
	}
}

// giveNone is a give that no connection may come to.
func (p *place) giveNone(batch []handover.CarriedConn, _ bool) error {
	p.t.Errorf("got %d connections, want none", len(batch))
	return errGive
}

var errGive = errors.New("the other process has gone")

// alone returns a place with one conversation, which waits for the second message.
func alone(t *testing.T) (p *place, client *peer, server *chat) {
	t.Helper()
	p = newPlace(t).serve()
	client = p.join("alone")
	client.ask("one")
	return p, client, p.chatOf(client)
}

// wantEnd waits for the only conversation's end.
func (p *place) wantEnd(want error) {
	p.t.Helper()
	testnet.Eventually(p.t, "the end", func() bool { return len(p.ends()) > 0 })
	if got := p.ends()[0]; !errors.Is(got, want) {
		p.t.Errorf("got the end %v, want %v", got, want)
	}
}

// TestGiveFails: conversations that could not be given go on, with the messages that came in the
// meantime, and the writes that began. They can move the next time.
func TestGiveFails(t *testing.T) {
	p, client, server := alone(t)
	wrote := make(chan error, 1)
	p.mustLeave(errGive, func([]handover.CarriedConn, bool) error {
		client.send(frame("meanwhile"))
		testnet.GoBlocked(t, "a write", func() { wrote <- server.say("by another") })
		if len(wrote) > 0 {
			t.Error("a write did not wait")
		}
		return errGive
	})
	if err := testnet.Receive(t, "the write", wrote); err != nil {
		t.Errorf("the write: %v", err)
	}
	client.want("by another")
	client.want("meanwhile")
	to := p.handOver(newPlace(t))
	client.ask("last")
	p.wantEnd(ErrMoved)
	client.Close()
	to.wantEnd(io.EOF)
}

// TestWriteMoved: a write that began while the conversation moved fails, as do later ones, and none of
// its bytes reach the client.
func TestWriteMoved(t *testing.T) {
	p, client, server := alone(t)
	wrote := make(chan error, 1)
	p.mustLeave(nil, func([]handover.CarriedConn, bool) error {
		testnet.GoBlocked(t, "a write", func() { wrote <- server.say("late") })
		return nil
	})
	for range 2 {
		if err := testnet.Receive(t, "the write", wrote); err != ErrMoved {
			t.Errorf("got %v, want %v", err, ErrMoved)
		}
		wrote <- server.say("later")
	}
	p.wantEnd(ErrMoved)
	client.wantEOF() // nothing else has a copy
}

// TestCloseInMove: a Close while the other process is about to get the connection ends it, whichever
// process has it then.
func TestCloseInMove(t *testing.T) {
	for _, result := range []error{nil, errGive} {
		t.Run(fmt.Sprint(result), func(t *testing.T) {
			p, client, server := alone(t)
			var copied *os.File
			p.mustLeave(result, func(batch []handover.CarriedConn, _ bool) (err error) {
				if len(batch) == 0 {
					return result
				}
				copied, err = batch[0].Conn.(*percore.Conn).File() // as the other process has one
				if err != nil {
					return err
				}
				server.conn.Close()
				return result
			})
			defer copied.Close()
			client.wantEOF()
			if n, err := copied.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("the copy: got %d, %v, want %v", n, err, io.EOF)
			}
			if result == nil {
				p.wantEnd(ErrMoved)
			} else {
				p.wantEnd(net.ErrClosed)
			}
		})
	}
}

// slowToClose is a connection whose Close waits, as that of TLS does for a peer that takes nothing.
type slowToClose struct {
	net.Conn
	closing, goOn chan struct{}
}

func (c *slowToClose) Close() error {
	c.closing <- struct{}{}
	<-c.goOn
	return c.Conn.Close()
}

// TestSlowClose: a Close that waits holds up no handover of others.
func TestSlowClose(t *testing.T) {
	p, _, _ := alone(t)
	ours, theirs := net.Pipe()
	slow := &slowToClose{theirs, make(chan struct{}, 2), make(chan struct{})}
	c := wsadapter.New(&conn{Conn: slow, group: p.group, state: staying})
	wsadapter.Start(c, &chat{place: p, conn: c, library: &library{br: bufio.NewReader(c)}})
	go c.Close()
	testnet.Receive(t, "Close", slow.closing)
	p.mustLeave(nil, func([]handover.CarriedConn, bool) error { return nil })
	p.wantEnd(ErrMoved)
	ours.Close()
	close(slow.goOn)
	testnet.Eventually(t, "the end of all", func() bool { return p.conns.Len() == 0 })
}

// TestCloseAtRest: a Close before its turn ends a conversation as usual, and so does a deadline.
func TestCloseAtRest(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(c *wsadapter.Conn)
		want error
	}{
		{"close", func(c *wsadapter.Conn) { c.Close() }, net.ErrClosed},
		{"a deadline", func(c *wsadapter.Conn) { c.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, client, server := alone(t)
			p.save = func(*chat) ([]byte, error) { // of one that rests
				test.end(server.conn)
				return nil, ErrNotNow
			}
			p.mustLeave(nil, p.giveNone)
			p.wantEnd(test.want)
			client.wantEOF()
		})
	}
}

// TestSaves: a Save that asks for another time, or is too old because something was written since, is
// called again, and the last state is given.
func TestSaves(t *testing.T) {
	for _, test := range []struct {
		name  string
		early func(c *chat) error // in the first two calls
	}{
		{"not now", func(*chat) error { return fmt.Errorf("the queue: %w", ErrNotNow) }},
		{"it writes", func(c *chat) error { return c.say("from Save") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, _, _ := alone(t)
			calls := 0 // one at a time
			p.save = func(c *chat) ([]byte, error) {
				if calls++; calls <= 2 {
					return []byte("early"), test.early(c)
				}
				return []byte("last"), nil
			}
			var given []string
			p.mustLeave(nil, func(batch []handover.CarriedConn, _ bool) error {
				for _, c := range batch {
					b, err := decodeBaggage(c.State)
					given = append(given, fmt.Sprint(string(b.State), err))
				}
				return nil
			})
			if got := strings.Join(given, ","); got != "last<nil>" || calls != 3 {
				t.Errorf("got %q after %d calls of Save, want the last after 3", got, calls)
			}
			p.wantEnd(ErrMoved)
		})
	}
}

// TestLargeStates: conversations whose states don't fit into one batch go in several.
func TestLargeStates(t *testing.T) {
	p := newPlace(t).serve()
	p.save = func(*chat) ([]byte, error) { return make([]byte, StateMax), nil }
	for i := range 3 {
		p.join(fmt.Sprint(i)).ask("one")
	}
	batches, follow := 0, true
	p.mustLeave(nil, func(batch []handover.CarriedConn, more bool) error {
		if batches, follow = batches+1, more; len(batch) != 1 {
			t.Errorf("got a batch of %d, want 1", len(batch))
		}
		return nil
	})
	if batches != 3 || follow {
		t.Errorf("got %d batches, others follow the last one: %t, want 3", batches, follow)
	}
}

// lockingEnd is a chat whose End waits for a lock that Save holds.
type lockingEnd struct{ *chat }

func (c lockingEnd) End(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chat.End(err)
}

// TestSaveFails: a Save that panics or hangs holds up no other conversation. The first ends its own,
// and the move doesn't wait for its End; after the second the conversation goes on.
func TestSaveFails(t *testing.T) {
	setTime(t, &saveTime, time.Millisecond)
	p := newPlace(t).serve()
	p.session = func(c *chat) wsadapter.Session[string] { return lockingEnd{c} }
	release := make(chan struct{})
	var hung atomic.Bool
	p.save = func(c *chat) ([]byte, error) {
		switch {
		case c.room == "panics":
			c.mu.Lock()
			panic(http.ErrAbortHandler)
		case c.room == "hangs" && !hung.Swap(true):
			<-release
		}
		return []byte("state"), nil
	}
	clients := make(map[string]*peer)
	for _, room := range []string{"panics", "hangs", "good"} {
		clients[room] = p.join(room)
		clients[room].ask("one")
	}
	var given atomic.Int32
	gone := p.leave(t.Context(), func(batch []handover.CarriedConn, _ bool) error {
		given.Add(int32(len(batch)))
		return nil
	})
	testnet.Eventually(t, "the others' move", func() bool { return given.Load() == 1 })
	clients["panics"].wantEOF()
	close(release)
	if err := testnet.Receive(t, "HandOver", gone); err != nil {
		t.Error(err)
	}
	if n := given.Load(); n != 2 {
		t.Errorf("got %d connections given, want 2", n)
	}
	p.chatOf(clients["panics"]).mu.Unlock()
	testnet.Eventually(t, "the ends", func() bool { return len(p.ends()) == 3 })
	for _, err := range p.ends() {
		if !errors.Is(err, ErrMoved) && !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("got the end %v", err)
		}
	}
}

// awaitHalf waits until the library has read half a message. Until then it may move, in the kernel.
func awaitHalf(t *testing.T, c *chat) {
	t.Helper()
	testnet.Eventually(t, "the read", c.library.half.Load)
}

// TestHalfMessages: a conversation in the middle of a message, in either direction, moves when the
// message is whole. The others don't wait for it.
func TestHalfMessages(t *testing.T) {
	p := newPlace(t).serve()
	reads, writes, fragments, other := p.join("reads"), p.join("writes"), p.join("fragments"), p.join("other")
	for _, c := range []*peer{reads, writes, fragments, other} {
		c.ask("one")
	}
	half := frame("two")
	reads.send(half[:7])
	awaitHalf(t, p.chatOf(reads))
	fragments.send(clientFrame(0x1, "t"))
	awaitHalf(t, p.chatOf(fragments))
	writer := p.chatOf(writes)
	answer := serverFrame("2 writes two")
	if _, err := writer.conn.Write(answer[:5]); err != nil {
		t.Fatal(err)
	}
	to := newPlace(t)
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		p.handOver(to)
	}()
	other.ask("two")
	testnet.Eventually(t, "the other's move", func() bool { return len(p.ends()) == 1 })
	reads.send(half[7:])
	reads.want("two")
	fragments.send(clientFrame(link.Fin, "wo"))
	fragments.want("two")
	if _, err := writer.conn.Write(answer[5:]); err != nil {
		t.Fatal(err)
	}
	writer.mu.Lock()
	writer.count++
	writer.mu.Unlock()
	writes.want("two")
	testnet.Receive(t, "the handover", moved)
	for _, c := range []*peer{reads, fragments, other} {
		c.ask("three")
		c.Close()
	}
	writes.Close()
	testnet.Eventually(t, "the ends", func() bool { return len(to.ends()) == 4 })
}

// TestBusy: a message that is not over when the time is stays with its process, and goes on there.
func TestBusy(t *testing.T) {
	p, client, _ := alone(t)
	before := counters.stayed[busy].Load()
	half := frame("two")
	client.send(half[:7])
	awaitHalf(t, p.chatOf(client))
	ctx, cancel := context.WithCancel(t.Context())
	gone := p.leave(ctx, p.giveNone)
	testnet.Eventually(t, "the departure", func() bool { return p.group.leaving.Load() != nil })
	cancel()
	if err := testnet.Receive(t, "HandOver", gone); err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if n := counters.stayed[busy].Load() - before; n != 1 {
		t.Errorf("got %d busy, want 1", n)
	}
	client.send(half[7:])
	client.want("two")
	client.ask("three")
	client.Close()
	p.wantEnd(io.EOF)
}

// TestClosing: a conversation whose close message was sent, by the library or the adapter, holds a
// handover up no longer than others, though its peer doesn't answer. It isn't saved, and stays.
func TestClosing(t *testing.T) {
	for name, tell := range map[string]func(c *chat){
		"by the library": func(c *chat) {
			if _, err := c.conn.Write([]byte{link.Fin | link.Close, 2, 3, 0xe8}); err != nil {
				t.Fatal(err)
			}
		},
		"by the adapter": func(c *chat) { c.place.group.members()[0].sendAway() },
	} {
		t.Run(name, func(t *testing.T) {
			p, client, server := alone(t)
			before := counters.stayed[busy].Load()
			p.save = func(*chat) ([]byte, error) {
				t.Error("Save was called")
				return nil, nil
			}
			tell(server)
			p.mustLeave(nil, p.giveNone)
			if n := counters.stayed[busy].Load() - before; n != 1 {
				t.Errorf("got %d busy, want 1", n)
			}
			if op, _, err := client.frame(); op != link.Close || err != nil {
				t.Errorf("got the frame %d, %v, want a close message", op, err)
			}
			client.Close()
			p.wantEnd(io.EOF)
		})
	}
}

// TestRestorersHang: more Restorers hang than run at a time. The handover succeeds, and the clients are
// told to connect again. A Restorer that goes on later finds a closed connection.
func TestRestorersHang(t *testing.T) {
	testnet.NoLeaks(t)
	setTime(t, &restoreTime, 50*time.Millisecond)
	setTime(t, &refusalSpread, time.Millisecond)
	var logged testnet.Log
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	const hang = restoresMax + 10
	p := newPlace(t).serve()
	var clients []*peer
	for i := range hang {
		clients = append(clients, p.join(fmt.Sprint("hangs", i)))
		clients[i].ask("one")
	}
	to := newPlace(t)
	release := make(chan struct{})
	var late sync.WaitGroup
	late.Add(hang)
	to.restorer = func(up *wsadapter.Upgrade, r *http.Request, state []byte) error {
		defer late.Done()
		<-release
		return to.restore(up, r, state)
	}
	before := counters.lostTime.Load()
	p.handOver(to)
	for _, c := range clients {
		c.wantAway()
	}
	if n := counters.lostTime.Load() - before; n != hang {
		t.Errorf("got %d lost because of the time, want %d", n, hang)
	}
	close(release)
	testnet.Within(t, "the Restorers", late.Wait)
	testnet.Eventually(t, "the end of all", func() bool { return to.conns.Len() == 0 })
	if n := logged.Count("takes too long"); n != hang {
		t.Errorf("got %d lines about connections, want %d", n, hang)
	}
}

// TestHold: conversations that belong together begin in the other process when all have come.
func TestHold(t *testing.T) {
	p, client, _ := alone(t)
	to := newPlace(t)
	read := make(chan struct{}, 10)
	to.read = func(c *chat) (string, error) {
		read <- struct{}{}
		return c.library.read()
	}
	to.ln = p.ln
	p.mustLeave(nil, func(batch []handover.CarriedConn, _ bool) error { return to.adopt(batch, true) })
	testnet.Eventually(t, "the Restorer", func() bool {
		to.group.arrivals.mu.Lock()
		defer to.group.arrivals.mu.Unlock()
		return to.group.arrivals.restoring == 0
	})
	if len(read) > 0 {
		t.Error("a conversation began before the others have come")
	}
	if err := to.adopt(nil, false); err != nil {
		t.Error(err)
	}
	client.ask("two")
	client.Close()
	to.wantEnd(io.EOF)
}
