package h2

import (
	"fmt"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) {
	testnet.Main(m, testnet.WithCheck(func() error {
		if s := pool.ReadStats(); s.BuffersInUse > 0 {
			return fmt.Errorf("%d buffers of the pool are in use, %d bytes", s.BuffersInUse, s.BytesInUse)
		}
		return nil
	}))
}
