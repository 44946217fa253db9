package reactor

import (
	"testing"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

// children are the processes of single tests' own.
var children []testnet.Option

func TestMain(m *testing.M) {
	testnet.Main(m, append(children, testnet.WithCheck(pool.CheckLeaks), testnet.WithCheck(checkGauges))...)
}
