package httpadapter

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// handOver calls HandOver, and fails if it takes so long that it counts as a hang.
func (f *fixture) handOver(give func([]percore.WaitingConn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	return f.server.HandOver(ctx, f.ln, give)
}

// wantGet sends a request and checks the answer.
func (c *client) wantGet(path, want string) {
	c.t.Helper()
	if got := c.get(path); got != want {
		c.t.Errorf("got %q, want %q", got, want)
	}
}

// giveNever is for servers without connections that move.
func giveNever([]percore.WaitingConn) error { return errors.New("give was called") }

// TestHandOverNothing: HandOver returns at once where net/http serves.
func TestHandOverNothing(t *testing.T) {
	if err := Wrap(&http.Server{}).HandOver(t.Context(), new(percore.Listener), giveNever); err != nil {
		t.Errorf("HandOver before Serve: %v", err)
	}
	leaveToNetHTTP(t)
	f := start(t, echoPath, nil)
	c := f.dial()
	c.wantGet("/1", "/1")
	if err := f.handOver(giveNever); err != nil {
		t.Errorf("HandOver: %v", err)
	}
	c.wantGet("/2", "/2")
}
