package frame_test

import (
	"testing"

	"github.com/percore/percore/adapters/reactor/frame"
	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	x := frame.Prefix{Bytes: 4}
	testnet.CheckArguments(t, map[string]testnet.Call{
		"Line":                {Func: frame.Line},
		"Prefix.AppendLength": {Func: x.AppendLength},
		"Prefix.Next":         {Func: x.Next},
	})
}
