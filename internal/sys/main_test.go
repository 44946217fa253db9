package sys_test // not sys: its imports import that

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }
