package stats

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := Median(c.v); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.v, got, c.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("Median(nil) = %v, want NaN", got)
	}
	v := []float64{3, 1, 2}
	if Median(v); v[0] != 3 || v[1] != 1 || v[2] != 2 {
		t.Errorf("Median changed its argument: %v", v)
	}
}

// TestIntervalRanks compares with the ranks of the tables for the sign test at
// 95 %, where k values are left out at each end.
func TestIntervalRanks(t *testing.T) {
	for n, k := range map[int]int{1: 0, 2: 0, 3: 0, 5: 0, 6: 0, 8: 0, 9: 1, 11: 1, 12: 2, 15: 3, 17: 4, 20: 5, 25: 7, 50: 17} {
		v := make([]float64, n)
		for i := range v {
			v[n-1-i] = float64(i) // unsorted, and v's k-th smallest is k
		}
		if lo, hi := Interval(v); lo != float64(k) || hi != float64(n-1-k) {
			t.Errorf("%d samples: [%v %v], want [%v %v]", n, lo, hi, k, n-1-k)
		}
	}
	if lo, hi := Interval(nil); !math.IsNaN(lo) || !math.IsNaN(hi) {
		t.Errorf("no samples: [%v %v], want NaN, NaN", lo, hi)
	}
}

func TestRatios(t *testing.T) {
	r := Ratios([]float64{2, 3, 8, 99}, []float64{4, 6, 10})
	want := Ratio{Median: 0.5, Lo: 0.5, Hi: 0.8, Pairs: 3}
	if r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	if r := Ratios([]float64{1, 1}, []float64{0, 2}); r.Pairs != 1 || r.Median != 0.5 {
		t.Errorf("with a zero divisor: %+v, want one pair of 0.5", r)
	}
	if r := Ratios(nil, []float64{1}); r.Pairs != 0 || r.Apart || r.Clear() {
		t.Errorf("without samples: %+v, clear %v; want no pairs and no verdict", r, r.Clear())
	}
}

func TestClear(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []float64
		want bool
	}{
		{"five pairs below", []float64{9, 19, 29, 9, 9}, []float64{10, 20, 30, 10, 10}, true},
		{"five pairs above", []float64{11, 21, 31, 11, 11}, []float64{10, 20, 30, 10, 10}, true},
		{"one of five on the other side", []float64{9, 9, 9, 9, 11}, []float64{10, 10, 10, 10, 10}, false},
		{"one of five equal", []float64{9, 9, 9, 9, 10}, []float64{10, 10, 10, 10, 10}, false},
		{"three pairs below, the arms overlap", []float64{9, 19, 29}, []float64{10, 20, 30}, false},
		{"three pairs below, the arms apart", []float64{9, 8, 7}, []float64{10, 20, 30}, true},
		{"two pairs", []float64{1, 1}, []float64{10, 10}, false},
	} {
		if got := Ratios(c.a, c.b).Clear(); got != c.want {
			t.Errorf("%s: clear is %v, want %v", c.name, got, c.want)
		}
	}
}
