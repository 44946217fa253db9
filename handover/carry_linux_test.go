//go:build !percore_net

package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// fakeCarrier gives connections in batches, and keeps those that it gets.
type fakeCarrier struct {
	mu    sync.Mutex
	conns []CarriedConn // to give
	calls []string      // of TakeOver
	taken []CarriedConn
	foul  func(b []CarriedConn) []CarriedConn // if not nil: spoils a batch
}

func (f *fakeCarrier) HandOver(_ context.Context, takes func(net.Conn) bool, give func([]CarriedConn, bool) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	mine := slices.DeleteFunc(slices.Clone(f.conns), func(c CarriedConn) bool { return !takes(c.Conn) })
	for len(mine) > 0 {
		batch := mine[:min(len(mine), CarriedMax)]
		mine = mine[len(batch):]
		if f.foul != nil {
			batch = f.foul(batch)
		}
		if err := give(batch, len(mine) > 0); err != nil {
			return err
		}
		for _, c := range batch {
			f.conns = slices.DeleteFunc(f.conns, func(o CarriedConn) bool { return o.Conn == c.Conn })
			c.Conn.Close()
		}
	}
	return nil
}

// spoil makes the carrier call foul for each batch. It is for before Ready.
func (f *fakeCarrier) spoil(foul func(b []CarriedConn) []CarriedConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foul = foul
}

func (f *fakeCarrier) TakeOver(batch []CarriedConn, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprint(len(batch), more))
	f.taken = append(f.taken, batch...)
}

// carrying is a predecessor with a carrier, and its successor.
type carrying struct {
	*predecessor
	from, to *fakeCarrier
	gave     <-chan error
	taker    *successor
	newLn    net.Listener // the successor's
	takes    *Conns       // with to
}

// newCarrying begins a handover in which n connections with states are to move.
func newCarrying(t *testing.T, n int, name string) *carrying {
	t.Helper()
	testnet.NoLeaks(t)
	c := &carrying{predecessor: &predecessor{ln: testnet.Listen(t, percore.Listen, testnet.TCP4)}, from: new(fakeCarrier), to: new(fakeCarrier)}
	for i := range n {
		server, client := testnet.Connect(t, c.ln)
		c.clients = append(c.clients, client)
		c.from.conns = append(c.from.conns, CarriedConn{server, fmt.Append(nil, "state ", i)})
	}
	from := new(Conns)
	from.Carry("fake", c.from)
	c.takes = new(Conns)
	c.takes.Carry(name, c.to)
	giving, taking := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	t.Cleanup(cancel)
	serveEcho(t, c.ln)
	gave := make(chan error, 1)
	go func() { gave <- give(ctx, giving, testnet.HangTimeout, from, serverOf("web", c.ln, nil)) }()
	c.gave = gave
	c.taker, c.newLn = mustTake(t, taking)
	serveEcho(t, c.newLn)
	t.Cleanup(func() {
		for _, c := range slices.Concat(c.from.conns, c.to.taken) {
			c.Conn.Close()
		}
	})
	return c
}

// move ends the handover.
func (c *carrying) move(t *testing.T) error {
	t.Helper()
	return errors.Join(c.taker.ready(t.Context(), c.takes), testnet.Receive(t, "give", c.gave))
}

// TestCarry: connections come out of the successor's carrier, in order and with their states, and work.
func TestCarry(t *testing.T) {
	const n = 2*CarriedMax + 5
	c := newCarrying(t, n, "fake")
	if err := c.move(t); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(c.to.calls), "[64 true 64 true 5 false]"; got != want {
		t.Errorf("got the calls %s, want %s", got, want)
	}
	if len(c.to.taken) != n {
		t.Fatalf("got %d connections, want %d", len(c.to.taken), n)
	}
	for i, moved := range c.to.taken {
		if got, want := string(moved.State), fmt.Sprint("state ", i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := moved.Conn.RemoteAddr().String(), c.clients[i].LocalAddr().String(); got != want {
			t.Errorf("got the client %s, want %s", got, want)
		}
		exchange(t, c.clients[i], moved.Conn)
	}
	if got := c.newLn.(*percore.Listener).Stats(); got.Adopted != n || got.Conns != n {
		t.Errorf("got %d connections adopted and %d open, want %d", got.Adopted, got.Conns, n)
	}
}

// TestCarryNobody: without a carrier of the name in the successor the connections stay.
func TestCarryNobody(t *testing.T) {
	c := newCarrying(t, 3, "other")
	if err := c.move(t); err != nil {
		t.Fatal(err)
	}
	if len(c.to.calls) > 0 || len(c.from.conns) != 3 {
		t.Errorf("got %d calls, and %d connections left, want none and 3", len(c.to.calls), len(c.from.conns))
	}
	exchange(t, c.clients[0], c.from.conns[0].Conn)
}

// TestCarryDropped: connections of a listener that the successor drops stay, too.
func TestCarryDropped(t *testing.T) {
	testnet.NoLeaks(t)
	old, web := testnet.Listen(t, percore.Listen, testnet.TCP4), testnet.Listen(t, percore.Listen, testnet.TCP4)
	stays, _ := testnet.Connect(t, old)
	moves, _ := testnet.Connect(t, web)
	g := &giver{servers: []server{serverOf("old", old, nil), serverOf("web", web, nil)}, dropped: map[int]bool{0: true}}
	for c, want := range map[net.Conn]int{stays: -1, moves: 1, new(net.TCPConn): -1} {
		if got := g.serverOf(c); got != want {
			t.Errorf("got server %d, want %d", got, want)
		}
	}
}

// TestCarryFails: a batch that breaks a rule, or a successor that hangs up, ends the handover, and the
// connections that were not committed stay. The successor's carrier gets its last call.
func TestCarryFails(t *testing.T) {
	for _, test := range []struct {
		name string
		foul func(c *carrying, b []CarriedConn) []CarriedConn
		want string
	}{
		{"too much state", func(_ *carrying, b []CarriedConn) []CarriedConn {
			b[0].State = make([]byte, CarriedBytesMax+1)
			return b
		}, "bytes of state, more than"},
		{"too many", func(c *carrying, _ []CarriedConn) []CarriedConn { return c.from.conns }, "a batch of 70 connections, more than 64"},
		{"of another listener", func(_ *carrying, b []CarriedConn) []CarriedConn {
			return append(b[:1:1], CarriedConn{Conn: new(net.TCPConn)})
		}, "a *net.TCPConn is no connection of a listener that moves"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCarrying(t, CarriedMax+6, "fake")
			count := 0
			c.from.spoil(func(b []CarriedConn) []CarriedConn {
				if count++; count == 1 && test.name != "too many" {
					return b
				}
				return test.foul(c, b)
			})
			readyErr := c.taker.ready(t.Context(), c.takes)
			wantError(t, testnet.Receive(t, "give", c.gave), test.want)
			wantError(t, readyErr, test.want)
			if calls := c.to.calls; len(calls) > 0 && calls[len(calls)-1] != "0 false" {
				t.Errorf("got the calls %q, want the last to have more false", calls)
			}
			for i := range c.from.conns {
				exchange(t, c.clients[len(c.clients)-len(c.from.conns)+i], c.from.conns[i].Conn)
			}
		})
	}
}

// TestCarryClosed: connections that were closed before they could be sent are left out, and if the last
// batch has no others the carrier is told nevertheless.
func TestCarryClosed(t *testing.T) {
	c := newCarrying(t, CarriedMax+2, "fake")
	c.from.spoil(func(b []CarriedConn) []CarriedConn {
		if len(b) == 2 {
			b[0].Conn.Close()
			b[1].Conn.Close()
		} else {
			b[5].Conn.Close()
		}
		return b
	})
	if err := c.move(t); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(c.to.calls), "[63 true 0 false]"; got != want {
		t.Errorf("got the calls %s, want %s", got, want)
	}
}

// TestCarryNames: names that can't be sent are the program's fault.
func TestCarryNames(t *testing.T) {
	for _, name := range []string{"", strings.Repeat("x", carrierNameMax+1), "twice"} {
		t.Run(name, func(t *testing.T) {
			var conns Conns
			conns.Carry("twice", new(fakeCarrier))
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			conns.Carry(name, new(fakeCarrier))
		})
	}
}

// TestUnaskedCarrier: connections for a carrier that the successor doesn't have are refused.
func TestUnaskedCarrier(t *testing.T) {
	useFakes(t)
	s := &successor{carriers: map[string]*taking{"a": {}}}
	err := s.hold(&message{Kind: conns, Carrier: "b\n"}, nil)
	wantError(t, err, `connections for carrier "b ", which this process doesn't have`)
}
