package figures_test

import (
	"testing"

	"github.com/percore/percore/internal/figures"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestRead(t *testing.T) {
	value := 1.0
	for _, name := range []string{"zeta", "alpha"} {
		figures.Register(name, func() []figures.Figure { return []figures.Figure{{Name: "conns", Value: value}} })
	}
	value = 2
	got := figures.Read()
	if len(got) != 2 || got[0].Name != "alpha" || got[1].Name != "zeta" || got[1].Figures[0].Value != 2 {
		t.Errorf("got %+v, want alpha and zeta, with their values as they are now", got)
	}
}
