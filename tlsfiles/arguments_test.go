package tlsfiles

import (
	"context"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	files := newFixture(t).open(nil)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"Open":          {Func: Open, Nils: "log"},
		"Files.Restore": {Func: files.Restore, Nils: "state"},
		"Files.Watch":   {Func: files.Watch, Args: []any{context.Background(), time.Second}},
	})
}
