//go:build !linux || percore_net

package handover

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// TestUnsupported: all calls say why nothing moves.
func TestUnsupported(t *testing.T) {
	_, takeErr := Take(t.Context(), new(net.UnixConn))
	_, startErr := Start(exec.Command("true"))
	for name, err := range map[string]error{
		"Give":  Give(t.Context(), new(net.UnixConn), Server{}),
		"Take":  takeErr,
		"Start": startErr,
	} {
		if !errors.Is(err, errors.ErrUnsupported) || strings.Count(err.Error(), "handover: ") != 1 {
			t.Errorf("%s: got %v, want an error that wraps %v", name, err, errors.ErrUnsupported)
		}
	}
	if c, err := Inherited(); c != nil || err != nil {
		t.Errorf("Inherited: got %v, %v, want nil, nil", c, err)
	}
}
