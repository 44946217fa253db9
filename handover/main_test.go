package handover

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// children are the helper processes of this platform's tests.
var children []testnet.Option

func TestMain(m *testing.M) { testnet.Main(m, children...) }
