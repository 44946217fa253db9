package pool

import (
	"runtime"
	"testing"
)

// TestSample: of many buffers about the right part is sampled, and a sample doesn't outlive its Get.
func TestSample(t *testing.T) {
	r := new(record)
	r.sample(1)
	if r.leak().stack == nil {
		t.Fatal("1 in 1: got no stack")
	}
	const every, gets = 4, 4000
	sampled := 0
	for range gets {
		r.sample(every)
		if r.leak().stack != nil {
			sampled++
		}
	}
	if sampled < gets/every/2 || sampled > gets/every*2 {
		t.Errorf("1 in %d: got %d of %d sampled", every, sampled, gets)
	}
	r.sample(0)
	if r.leak().stack != nil {
		t.Error("none: got a stack, of an earlier user")
	}
}

// TestRosterStaysSmall: the records of dead buffers go with every call.
func TestRosterStaysSmall(t *testing.T) {
	p := New(Config{KeptBytesMax: -1})
	const gets = 20_000
	most := 0
	for i := range gets {
		if i%1000 == 0 {
			runtime.GC()
		}
		p.Get(1).Release()
		most = max(most, len(p.roster.entries))
	}
	if most > gets/4 {
		t.Errorf("got up to %d entries for buffers that were garbage at once, want fewer", most)
	}
	if s := p.Stats(); s.Gets != gets || s.Misses != gets || s.BytesKept != 0 {
		t.Errorf("got %+v, want %d gets, all of them misses, and nothing kept", s, gets)
	}
}
