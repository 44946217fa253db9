package pool_test

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	defer pool.Configure(pool.Config{})
	b := pool.Get(1)
	defer b.Release()
	testnet.CheckArguments(t, map[string]testnet.Call{
		"Buffer.SetLen": {Func: b.SetLen},
		"Configure":     {Func: pool.Configure},
		"Get":           {Func: func(n int) { pool.Get(n).Release() }},
		"GetBytes":      {Func: func(n int) { pool.PutBytes(pool.GetBytes(n)) }},
		"PutBytes":      {Func: pool.PutBytes},
	})
	testnet.CheckNegatives(t, func(c pool.Config) error {
		pool.Configure(c)
		return nil
	}, "KeptBytesMax")
}
