//go:build !percore_net

package reactor

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// Handlers run on loops of any strategy, pinned threads among them.
func TestStrategies(t *testing.T) {
	testnet.NoLeaks(t)
	for _, config := range []loop.Config{{Loops: 1}, {Loops: 2, Strategy: loop.Thread}, {Loops: 2, Strategy: loop.Thread, Pin: true}} {
		g, err := loop.NewGroup(config)
		if err != nil {
			t.Fatal(err)
		}
		lc := percore.ListenConfig{Group: g}
		ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		g.Close()
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(&handler{data: echo}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		for i := range 10 {
			c, err := net.Dial("tcp4", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprint("message ", i)
			io.WriteString(c, text)
			c.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(c); string(got) != text || err != nil {
				t.Errorf("%+v: got %q, %v, want %q", config, got, err, text)
			}
			c.Close()
		}
		s.Close()
		if err := testnet.Receive(t, "Serve", served); err != ErrServerClosed {
			t.Errorf("Serve: got %v, want %v", err, ErrServerClosed)
		}
	}
}
