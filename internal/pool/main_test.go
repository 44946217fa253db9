package pool_test

import (
	"testing"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	testnet.Main(m, testnet.WithCheck(pool.CheckLeaks))
}
