package zerocopy_test

import (
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/zerocopy"
)

// TestReadStats: each metric is that of its own counter.
func TestReadStats(t *testing.T) {
	before := percore.ReadStats().ZeroCopy
	features.SendfileBytes.Add(1)
	features.SpliceBytes.Add(2)
	features.CopiedBytes.Add(3)
	features.WritevBytes.Add(4)
	features.WritevCalls.Add(5)
	want := before
	want.SendfileBytes++
	want.SpliceBytes += 2
	want.CopiedBytes += 3
	want.WritevBytes += 4
	want.WritevCalls += 5
	if got := percore.ReadStats().ZeroCopy; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestFeatures: a feature that is switched off is reported so, with the reason, and no other.
func TestFeatures(t *testing.T) {
	defer features.Splice.Force(false)()
	defer features.Writev.Force(true)()
	on := make(map[string]bool)
	for _, f := range zerocopy.Features() {
		on[f.Name] = f.On
		if f.On != (f.WhyOff == "") {
			t.Errorf("%s: got on %t and the reason %q, want a reason exactly if it is off", f.Name, f.On, f.WhyOff)
		}
	}
	if splice, ok := on["splice"]; splice || !ok || !on["writev"] || len(on) != len(features.All) {
		t.Errorf("with splice off and writev on: got %v", on)
	}
}
