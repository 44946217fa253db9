package sse

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestEnds: what ends a server closes its Hub, and so doesn't wait for clients. Those that come later
// are told to come back, too.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(context.Context, *http.Server, *httpadapter.Server, net.Listener) error{
		"Shutdown of the Server": func(ctx context.Context, _ *http.Server, s *httpadapter.Server, _ net.Listener) error {
			return s.Shutdown(ctx)
		},
		"Shutdown of the http.Server": func(ctx context.Context, srv *http.Server, _ *httpadapter.Server, _ net.Listener) error {
			return srv.Shutdown(ctx)
		},
		"HandOver": func(ctx context.Context, _ *http.Server, s *httpadapter.Server, ln net.Listener) error {
			return s.HandOver(ctx, ln, func([]percore.WaitingConn) error { return nil })
		},
	} {
		for _, variable := range []string{"", "http=net"} {
			t.Run(name+", "+variable, func(t *testing.T) {
				t.Setenv("PERCOREDEBUG", variable)
				testnet.NoLeaks(t)
				h := NewHub(Config{})
				srv := &http.Server{Handler: h}
				ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
				s := httpadapter.Wrap(srv)
				s.RegisterOnDrain(h.Close)
				calls := make(chan bool, 2)
				s.RegisterOnDrain(func() { calls <- true })
				served := make(chan error, 1)
				go func() { served <- s.Serve(ln) }()
				r := open(t, "http://"+ln.Addr().String(), "")
				ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
				defer cancel()
				if err := end(ctx, srv, s, ln); err != nil {
					t.Errorf("got %v, want the clients to be gone", err)
				}
				if _, err := io.ReadAll(r.br); err != nil {
					t.Errorf("the answer ends with %v", err)
				}
				if err := s.Shutdown(ctx); err != nil {
					t.Errorf("Shutdown afterwards: %v", err)
				}
				testnet.Receive(t, "Serve", served)
				testnet.Receive(t, "a call of RegisterOnDrain's function", calls)
				if len(calls) != 0 {
					t.Error("RegisterOnDrain's function was called twice")
				}
				testnet.Eventually(t, "the client has left", func() bool { return h.Len() == 0 })
				_, url := serveHub(t, h)
				if got := open(t, url, "").event(); got != "EOF" {
					t.Errorf("got %q behind the end of the hub", got)
				}
			})
		}
	}
}
