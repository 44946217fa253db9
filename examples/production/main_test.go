package main

import (
	"os"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	if os.Getenv("PRODUCTION_EXAMPLE") != "" {
		main()
		return
	}
	testnet.Main(m)
}
