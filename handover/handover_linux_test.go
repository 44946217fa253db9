//go:build !percore_net

package handover

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestHandOver: all connections of two servers move, in as many messages as it takes, and work.
func TestHandOver(t *testing.T) {
	for _, kind := range testnet.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			useFakes(t)
			first, second := newPredecessor(t, kind, 2*descriptorsMax+10), newPredecessor(t, kind, 3)
			a, gave := meet(t, first.server("first"), second.server("second"))
			for i, p := range []*predecessor{first, second} {
				ln := mustOpen(t, a, []string{"first", "second"}[i])
				if got, want := ln.Addr().String(), p.ln.Addr().String(); got != want {
					t.Errorf("got address %s, want %s", got, want)
				}
				fakeOf(ln).SetUnlinkOnClose(false)
				defer func() {
					if got, want := fakeOf(ln).state(), fmt.Sprintf("paused=false unlink=true adopted=%d", len(p.clients)); got != want {
						t.Errorf("the successor's listener %d: got %s, want %s", i, got, want)
					}
					for j := range fakeOf(ln).adopted {
						c := &fakeOf(ln).adopted[j]
						if !c.Served {
							t.Errorf("connection %d: got not served", j)
						}
						talk(t, p.clients[j], c)
					}
				}()
			}
			if err := errors.Join(a.ready(t.Context(), nil), testnet.Receive(t, "give", gave)); err != nil {
				t.Fatal(err)
			}
			for i, p := range []*predecessor{first, second} {
				if got, want := p.fake.state(), "paused=true unlink=false adopted=0"; got != want {
					t.Errorf("the predecessor's listener %d: got %s, want %s", i, got, want)
				}
			}
		})
	}
}

// TestDeadline: connections that stay busy until ctx or the giver's patience ends are left behind,
// without an error.
func TestDeadline(t *testing.T) {
	t.Run("ctx", func(t *testing.T) { testDeadline(t, testnet.HangTimeout) })
	t.Run("patience", func(t *testing.T) { testDeadline(t, time.Millisecond) })
}

func testDeadline(t *testing.T, patience time.Duration) {
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	p.source.busy = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	giving, taking := pair(t)
	gave := make(chan error, 1)
	go func() { gave <- give(ctx, giving, patience, nil, p.server("web")) }()
	a, ln := mustTake(t, taking)
	readied := make(chan error, 1)
	go func() { readied <- a.ready(t.Context(), nil) }()
	if patience == testnet.HangTimeout {
		testnet.Eventually(t, "one connection moves", func() bool { return p.source.left() == 0 })
		cancel()
	}
	if err := errors.Join(testnet.Receive(t, "give", gave), testnet.Receive(t, "ready", readied)); err != nil {
		t.Error(err)
	}
	if got, want := len(fakeOf(ln).adopted), 1-p.source.left(); got != want {
		t.Errorf("got %d connections, want %d", got, want)
	}
}

// TestLateConnection: a connection that Accept has taken from the backlog before the pause moves,
// too, as soon as its server has it.
func TestLateConnection(t *testing.T) {
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 3)
	late := p.source.conns[2]
	p.source.conns = p.source.conns[:2]
	looks := 0
	p.fake.unsettled = func() bool {
		if looks++; looks == 3 {
			p.source.mu.Lock()
			defer p.source.mu.Unlock()
			p.source.conns = append(p.source.conns, late)
		}
		return looks == 3
	}
	p.handOver(t)
}

// TestNeverSettled: a listener from which the program has stopped accepting is handed over all the same.
func TestNeverSettled(t *testing.T) {
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	p.fake.unsettled = func() bool { return false }
	log := logTo(t)
	const line = "does not come back to Accept"
	source := sourceFunc(func() error { // is called once more after that line
		if log.Has(line) {
			stepNanoseconds.Store(int64(testnet.HangTimeout)) // for the successor's last word
		}
		return nil
	})
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, serverOf("web", p.ln, source))
	s := newStranger(t, taking)
	s.greet()
	shortSteps(t)
	s.say(&message{Kind: ready})
	s.hear(done)
	s.say(&message{Kind: over})
	if err := testnet.Receive(t, "give", gave); err != nil {
		t.Error(err)
	}
	p.wantAll(t)
	if got := log.String(); !log.Has(line) || log.Count("\n") != 1 {
		t.Errorf("got the log %q, want a line about Accept", got)
	}
}
