//go:build !percore_net

package reactor

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestEngineNet: where the environment has taken the engine out, the errors say so, and what to do.
func TestEngineNet(t *testing.T) {
	t.Setenv("PERCOREDEBUG", "engine=net")
	s, err := New(&handler{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, lc := range map[string]percore.ListenConfig{"plain": {}, "limited": {MaxConns: 1}} {
		ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		client := testnet.Dial(t, ln)
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		_, attachErr := s.Attach(server, nil, nil)
		for call, err := range map[string]error{"Serve": s.Serve(ln), "Attach": attachErr} {
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "PERCOREDEBUG=engine=net") || !strings.Contains(err.Error(), "percore_net") {
				t.Errorf("%s, %s: got %v, want an error about the environment and the build tag", name, call, err)
			}
		}
		client.Close()
	}
	t.Setenv("PERCOREDEBUG", "")
	if err := s.Serve(new(net.TCPListener)); errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("with the engine: got %v, want an error about the listener only", err)
	}
}
