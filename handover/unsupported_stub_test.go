//go:build !linux || percore_net

package handover

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestUnsupported: both sides of a restart say why nothing moves.
func TestUnsupported(t *testing.T) {
	t.Setenv(variable, "3")
	_, takeErr := inheritFrom(t.Context())
	r := &run{Service: &Service{Parts: []Part{{Name: "web", Server: new(http.Server)}}}}
	r.listeners = append(r.listeners, testnet.Listen(t, percore.Listen, testnet.TCP4))
	_, giveErr := r.servers()
	for name, err := range map[string]error{"the successor": takeErr, "the predecessor": giveErr} {
		if !errors.Is(err, errors.ErrUnsupported) || strings.Count(err.Error(), "handover: ") != 1 {
			t.Errorf("%s: got %v, want an error that wraps %v", name, err, errors.ErrUnsupported)
		}
	}
}
