package reactor

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// children are the processes of single tests' own.
var children []testnet.Option

func TestMain(m *testing.M) {
	testnet.Main(m, append(children, testnet.WithCheck(pool.CheckLeaks), testnet.WithCheck(checkGauges))...)
}
