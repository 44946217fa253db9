//go:build !percore_net

package pool

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/percore/percore/adapters/httpadapter/internal/client/link"
	"github.com/percore/percore/internal/shared/counters"
	"github.com/percore/percore/internal/testnet"
)

// A Conn takes 80 bytes, one of the allocator's size classes. More would cost 16 bytes.
const connBytesMax = 80

func TestConnSize(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); n > connBytesMax {
		t.Errorf("a Conn takes %d bytes, want %d at most", n, connBytesMax)
	}
}

// newPool returns a Pool, the route to a server, and the server's connections. Over each of them the
// server sends a byte, behind the messages of TLS.
func newPool(t *testing.T, secure bool) (*Pool, *Route, <-chan net.Conn) {
	server, client := testnet.TLS(t)
	accepted := make(chan net.Conn, 100)
	srv := testnet.Serve(t, testnet.Listen(t, net.Listen, testnet.TCP4), func(c net.Conn) {
		if secure {
			c = tls.Server(c, server)
		}
		if _, err := c.Write([]byte{1}); err == nil {
			accepted <- c
			<-t.Context().Done()
		}
	})
	p := &Pool{
		Base:     &http.Transport{MaxIdleConnsPerHost: 100},
		Counters: counters.NewSet(counters.Cells(), CounterEnd),
		DialsMax: DialsMax, Patience: PatienceMost,
		Dial: func(ctx context.Context, h *Host) (l link.Conn, err error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", h.Addr)
			if err != nil {
				return l, err
			}
			if l, err = link.TakeOver(nc); err == nil && secure {
				err = l.Handshake(ctx, client, 0)
			}
			return l, err
		},
		Share: func(c *Conn) error { c.Link.DropFinalizer(); return nil },
	}
	t.Cleanup(p.CloseIdle)
	return p, &Route{Key: srv.Addr().String(), Addr: srv.Addr().String()}, accepted
}

// take returns a connection whose server has sent its byte.
func take(t *testing.T, p *Pool, r *Route) *Conn {
	t.Helper()
	c, _, w := p.Take(t.Context(), r)
	if w == nil {
		return c
	}
	c, err := w.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c.Link.Stream(), make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

func awaitEmpty(t *testing.T, p *Pool) {
	t.Helper()
	testnet.Eventually(t, "the pool forgets the connections", func() bool {
		for range p.Hosts {
			return false
		}
		return p.idleConns() == 0
	})
}

// TestPutWhileSomethingComes: what comes between arming a connection's callback and making it idle is
// noticed. The test holds the lock for which Put waits then.
func TestPutWhileSomethingComes(t *testing.T) {
	for name, test := range map[string]struct {
		happen  func(c *Conn, server net.Conn)
		timeout time.Duration // IdleConnTimeout
		empty   bool          // there is nothing to read
	}{
		"nothing":     {nil, 0, true},
		"a false one": {func(c *Conn, _ net.Conn) { spurious(c) }, 0, true},
		"a byte":      {func(_ *Conn, s net.Conn) { _, _ = s.Write([]byte("x")) }, 0, false},
		"the end":     {func(_ *Conn, s net.Conn) { s.Close() }, 0, false},
		"the timeout": {func(*Conn, net.Conn) {}, time.Millisecond, true},
	} {
		for _, waited := range []bool{false, true} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, TLS %t, a call waits %t", name, secure, waited), func(t *testing.T) {
					p, r, accepted := newPool(t, secure)
					p.Base.IdleConnTimeout = test.timeout
					c := take(t, p, r)
					h := c.Host
					h.mu.Lock()
					var locked sync.Once
					unlock := func() { locked.Do(h.mu.Unlock) }
					defer unlock()
					put := make(chan bool, 1)
					go func() {
						_ = c.Put()
						put <- true
					}()
					testnet.Eventually(t, "Put begins to arm the callback", func() bool { return c.state.Load() != busy })
					srv := testnet.Receive(t, "the server's connection", accepted)
					if test.happen != nil {
						test.happen(c, srv)
						testnet.Eventually(t, "the callback comes", func() bool { return c.state.Load() != arming })
					}
					w := &Waiter{host: h, cancel: func() {}, result: make(chan dialed, 1)}
					if waited {
						w.place = h.waiters.PushBack(w)
						h.waiting.Store(1)
					}
					unlock()
					testnet.Receive(t, "the end of Put", put)
					switch {
					case waited && secure:
						checkGiven(t, c, w, test.empty)
					case waited && len(w.result) > 0: // else the callback has come, and Put doesn't look what for
						checkGiven(t, c, w, test.happen == nil)
					case waited:
						w.leave()
					case test.empty && test.timeout == 0:
						checkKept(t, c)
					}
					awaitEmpty(t, p)
				})
			}
		}
	}
}

// spurious makes a connection's callback come for nothing, unless it has done so already.
func spurious(c *Conn) {
	for c.state.Load() == arming {
		if c.Link.CancelSleep() {
			c.OnReadable(nil)
		}
		runtime.Gosched()
	}
}

// checkGiven checks whether w has got a connection, without a callback, and closes it.
func checkGiven(t *testing.T, c *Conn, w *Waiter, want bool) {
	t.Helper()
	if got := len(w.result) > 0; got != want {
		t.Errorf("the call has got a connection: %t, want %t", got, want)
	}
	if len(w.result) == 0 {
		w.leave()
		return
	}
	if got := (<-w.result).conn; got != c {
		t.Error("the call has got another connection")
	}
	if state := c.state.Load(); state != busy || c.Link.CancelSleep() {
		t.Errorf("the connection is in state %d, or has a callback", state)
	}
	c.Close()
}

// checkKept checks that a connection is idle, with a callback, and closes it.
func checkKept(t *testing.T, c *Conn) {
	t.Helper()
	c.Host.mu.Lock()
	listed := slices.Contains(c.Host.idle, c)
	c.Host.mu.Unlock()
	if state := c.state.Load(); !listed || state != idle {
		t.Errorf("the connection is in the list: %t, in state %d", listed, state)
	}
	testnet.Eventually(t, "the callback is armed", c.Link.CancelSleep)
	c.remove()
}

// full is what calls share of a connection that has no room.
type full struct{}

func (full) Reserve() bool      { return false }
func (full) Unreserve()         {}
func (full) Quota() int         { return 0 }
func (full) GoAway()            {}
func (full) GoAwayIfIdle() bool { return false }

// TestDialsArePaced: calls to a server whose connections are shared don't dial each.
func TestDialsArePaced(t *testing.T) {
	p, r, _ := newPool(t, false)
	p.Patience = time.Hour
	p.Share = func(c *Conn) error { c.Streams = full{}; return nil }
	r.Shares = true
	c := take(t, p, r)
	defer c.Ended()
	c.Host.mu.Lock()
	c.Host.took = time.Hour
	c.Host.mu.Unlock()
	p.Dial = func(ctx context.Context, _ *Host) (l link.Conn, err error) {
		<-ctx.Done()
		return l, ctx.Err()
	}
	const calls = 50
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			if _, _, w := p.Take(ctx, r); w != nil {
				_, _ = w.Wait(ctx)
			}
		})
	}
	count := func(c Counter) int64 { return p.Counters.Sums()[c] }
	testnet.Eventually(t, "all calls wait", func() bool { return count(Waiting) == calls })
	if n := count(Dialing); n != 1 {
		t.Errorf("got %d dials, want 1", n)
	}
	cancel()
	all.Wait()
	p.CloseIdle() // which ends the dial
	testnet.Eventually(t, "the dial ends", func() bool { return count(Dialing) == 0 })
}
