package handover

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	testnet.CheckArguments(t, map[string]testnet.Call{
		"Conns.Add":      {Func: new(Conns).Add},
		"Conns.Carry":    {Func: new(Conns).Carry, Args: []any{"name"}},
		"Conns.Shutdown": {Func: new(Conns).Shutdown},
		"Service.Run":    {Func: new(Service).Run},
	})
}
