package debug

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	testnet.CheckArguments(t, map[string]testnet.Call{
		"RefuseCrossOrigin": {Func: RefuseCrossOrigin},
		"Report":            {Func: Report},
		"RefuseHostNames":   {Func: RefuseHostNames},
	})
}
