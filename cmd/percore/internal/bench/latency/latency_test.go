package latency

import (
	"sync"
	"testing"
	"time"
)

// near reports whether got is want to the three digits that a histogram keeps.
func near(got, want time.Duration) bool {
	return got >= want-want/500 && got <= want+want/500
}

func TestQuantiles(t *testing.T) {
	h := New()
	for i := range 1000 {
		h.Record(time.Duration(i+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{
		0.5: 500 * time.Millisecond, 0.9: 900 * time.Millisecond,
		0.99: 990 * time.Millisecond, 0.999: 999 * time.Millisecond,
	} {
		if got := h.Quantile(q); !near(got, want) {
			t.Errorf("quantile %v = %v, want %v", q, got, want)
		}
	}
	if got := h.Max(); !near(got, time.Second) {
		t.Errorf("max = %v, want 1s", got)
	}
	if got := h.Count(); got != 1000 {
		t.Errorf("count = %d, want 1000", got)
	}
}

func TestEncodeAndMerge(t *testing.T) {
	a, b := New(), New()
	a.Record(3 * time.Millisecond)
	b.Record(7 * time.Second)
	s, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(s)
	if err != nil {
		t.Fatal(err)
	}
	got.Merge(b)
	if got.Count() != 2 || !near(got.Quantile(0.5), 3*time.Millisecond) || !near(got.Max(), 7*time.Second) {
		t.Errorf("count %d, median %v, max %v; want 2, 3ms, 7s", got.Count(), got.Quantile(0.5), got.Max())
	}
	if _, err := Decode("not a histogram"); err == nil {
		t.Error("Decode accepted nonsense")
	}
}

func TestRecorder(t *testing.T) {
	const goroutines, each = 8, 1000 // not a multiple of a shard's size
	rec := NewRecorder()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			s := rec.Shard()
			defer s.Flush()
			for i := range each {
				s.Record(time.Duration(i+1) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	h := rec.Histogram()
	if got := h.Count(); got != goroutines*each {
		t.Errorf("%d latencies arrived, want %d", got, goroutines*each)
	}
	if got := h.Max(); !near(got, time.Second) {
		t.Errorf("max = %v, want 1s", got)
	}
}
