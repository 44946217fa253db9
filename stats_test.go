package percore

import "testing"

// TestRegisterAdapter: ReadStats calls the function of each adapter, in the order of their names.
func TestRegisterAdapter(t *testing.T) {
	adapters.Lock()
	before := adapters.registered
	adapters.registered = nil
	adapters.Unlock()
	defer func() {
		adapters.Lock()
		defer adapters.Unlock()
		adapters.registered = before
	}()
	value := 1.0
	for _, name := range []string{"zeta", "alpha"} {
		RegisterAdapter(name, func() []Metric { return []Metric{{Name: "conns", Value: value}} })
	}
	value = 2
	got := ReadStats().Adapters
	if len(got) != 2 || got[0].Adapter != "alpha" || got[1].Adapter != "zeta" || got[1].Metrics[0].Value != 2 {
		t.Errorf("got %+v, want alpha and zeta, with their values as they are now", got)
	}
}
