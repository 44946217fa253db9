package h2

import (
	"errors"
	"reflect"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) {
	testnet.Main(m, testnet.WithCheck(pool.CheckLeaks), testnet.WithCheck(checkShared), testnet.WithChild("crash", crash))
}

// checkShared returns an error if a connection has changed what most have in common.
func checkShared() error {
	if !reflect.ValueOf(nothingWaits).IsZero() || !reflect.ValueOf(noEnding).IsZero() {
		return errors.New("nothingWaits or noEnding has changed")
	}
	return nil
}
