package sys_test // not sys: its imports import that

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// children are the helpers that run in processes of their own.
var children []testnet.Option

func TestMain(m *testing.M) { testnet.Main(m, children...) }
