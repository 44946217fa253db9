package loop

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// A group made in a bubble, whose other loops start in it, too, serves inside and outside.
func TestGroupBegunInBubble(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			var g *Group
			var fds, peers []*FD
			synctest.Test(t, func(t *testing.T) {
				config := engine.config
				config.Loops = 3
				var err error
				if g, err = NewGroup(config); err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					a, b, err := makeUnixPair()
					if err != nil {
						t.Fatal(err)
					}
					for _, end := range []struct {
						sysfd int
						loop  *Loop
						to    *[]*FD
					}{{a, g.Loop(i), &fds}, {b, g.Loop((i + 1) % 3), &peers}} {
						f, err := end.loop.NewFD(end.sysfd, Plain)
						if err != nil {
							t.Fatal(err)
						}
						*end.to = append(*end.to, f)
					}
				}
				for i := range fds {
					wantAnswers(t, fds[i], peers[i])
				}
			})
			for i := range fds {
				wantAnswers(t, fds[i], peers[i])
			}
			synctest.Test(t, func(t *testing.T) {
				for i := range fds {
					wantAnswers(t, fds[i], peers[i])
				}
				g.Close()
				for i := range fds {
					closeFD(t, fds[i])
				}
			})
			for i := range peers {
				closeFD(t, peers[i])
			}
			testnet.Receive(t, "the group's end", g.Stopped())
		})
	}
}

// wantAnswers has b answer a, and lets a deadline pass.
func wantAnswers(t *testing.T, a, b *FD) {
	t.Helper()
	var answering sync.WaitGroup
	answering.Go(func() {
		p := make([]byte, 8)
		for range 20 {
			n, err := b.Read(p)
			if err == nil {
				_, err = b.Write(p[:n])
			}
			if err != nil {
				t.Errorf("answering: %v", err)
			}
		}
	})
	p := make([]byte, 8)
	for range 20 {
		_, _ = a.Write([]byte("ping"))
		if n, err := a.Read(p); string(p[:n]) != "ping" || err != nil {
			t.Fatalf("Read: got %q, %v, want ping", p[:n], err)
		}
	}
	answering.Wait()
	_ = a.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	if n, err := a.Read(p); n != 0 || err != errTimeout {
		t.Errorf("Read: got %d, %v, want %v", n, err, errTimeout)
	}
	_ = a.SetReadDeadline(time.Time{})
}

// The lone descriptor of a loop is polled by the goroutine that waits for it, inside a bubble, too:
// a deadline and Close reach it there.
func TestLeaderInBubble(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newPair(t, g.Loop(0), overUnix)
	synctest.Test(t, func(t *testing.T) {
		p := make([]byte, 8)
		for range 100 {
			_, _ = peer.Write([]byte("x"))
			if n, err := f.Read(p); n != 1 || err != nil {
				t.Fatalf("Read: got %d, %v, want 1", n, err)
			}
		}
		_ = f.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		if n, err := f.Read(p); n != 0 || err != errTimeout {
			t.Errorf("Read: got %d, %v, want %v", n, err, errTimeout)
		}
		_ = f.SetReadDeadline(time.Time{})
		var reading sync.WaitGroup
		reading.Go(func() {
			if n, err := f.Read(p); n != 0 || err != ErrClosed {
				t.Errorf("Read: got %d, %v, want %v", n, err, ErrClosed)
			}
		})
		for !f.rd.awaited() { // a mutex is all that a bubble and its outside could wait on
			time.Sleep(0)
		}
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		reading.Wait()
	})
}
