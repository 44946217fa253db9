//go:build !percore_net

package exchange

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"github.com/percore/percore/adapters/httpadapter/internal/client/link"
	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/internal/shared/counters"
	"github.com/percore/percore/internal/testnet"
)

// TestCloseWhileReading: Close makes a read fail that waits.
func TestCloseWhileReading(t *testing.T) {
	server, client := testnet.Pair(t, net.Listen, testnet.TCP4)
	go func() {
		_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
	}()
	base := new(http.Transport)
	p := pool.Pool{
		Base: base, Counters: counters.NewSet(counters.Cells(), pool.CounterEnd), DialsMax: 1,
		Dial:  func(context.Context, *pool.Host) (link.Conn, error) { return link.TakeOver(client) },
		Share: func(c *pool.Conn) error { c.Link.DropFinalizer(); return nil },
	}
	_, _, w := p.Take(t.Context(), &pool.Route{Key: "server"})
	c, err := w.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("GET", "http://server/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := Do(new(Memory), c, &request.Request{Base: base, Req: req, Ctx: t.Context(), Target: "/"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(resp.Body, make([]byte, 3))
	failed := make(chan error)
	go func() {
		_, err := resp.Body.Read(make([]byte, 1))
		failed <- err
	}()
	for b := resp.Body.(*body); ; runtime.Gosched() {
		b.mu.Lock()
		busy := b.busy
		b.mu.Unlock()
		if busy {
			break
		}
	}
	resp.Body.Close()
	if err := <-failed; err == nil || err == io.EOF {
		t.Errorf("got %v, want an error", err)
	}
	testnet.Eventually(t, "the pool forgets the connection", func() bool { // Go 1.27 drains for a moment
		for range p.States() {
			return false
		}
		return true
	})
}
