// Package stats has the few statistics that the benchmark reports: medians, and an interval for
// each that doesn't assume anything about the distribution of the samples.
package stats

import (
	"math"
	"slices"
)

// Median returns the middle of v, or the mean of the two middle values. It returns NaN if v is
// empty. It doesn't change v.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// Confidence is the coverage that Interval aims for.
const Confidence = 0.95

// Interval returns two order statistics of v. The median of the distribution that v was drawn from
// lies between them with a probability of at least Confidence, if that many samples can give it.
// Five samples give 93.75 % at most, and then lo and hi are the smallest and the largest.
//
// It follows from the binomial distribution alone: each sample is below the true
// median with probability ½.
func Interval(v []float64) (lo, hi float64) {
	n := len(v)
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	// Leaving out k samples at each end misses the median with probability 2·P(Binomial(n, ½) ≤ k).
	// Leave out as many as Confidence allows.
	k, term := 0, 2*math.Pow(0.5, float64(n))
	for miss := term; k+1 < n-1-(k+1); k++ {
		term *= float64(n-k) / float64(k+1) // C(n, k+1)/C(n, k)
		if miss += term; miss > 1-Confidence {
			break
		}
	}
	return s[k], s[n-1-k]
}

// Ratio says how one arm compares with another, pair by pair.
type Ratio struct {
	Median float64
	Lo, Hi float64 // see Interval
	Pairs  int
	Apart  bool // all samples of one arm are below all samples of the other
}

// Ratios compares a with b: the i-th element of a with the i-th of b, as long as both have one. It
// leaves out pairs whose divisor is zero.
func Ratios(a, b []float64) Ratio {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	var r []float64
	for i := range n {
		if b[i] != 0 {
			r = append(r, a[i]/b[i])
		}
	}
	lo, hi := Interval(r)
	return Ratio{
		Median: Median(r), Lo: lo, Hi: hi, Pairs: len(r),
		Apart: n > 0 && (slices.Max(a) < slices.Min(b) || slices.Min(a) > slices.Max(b)),
	}
}

// The evidence that a verdict needs.
const (
	// pairsMany is how many pairs are enough if the interval excludes 1. For equal arms, all of
	// five ratios are on the same side in 1 of 16 comparisons.
	pairsMany = 5

	// pairsFew is how many pairs are enough if, in addition, all samples of one arm are below all
	// samples of the other. With three, equal arms do that in 1 of 10 comparisons.
	pairsFew = 3
)

// Clear reports whether there is no reasonable doubt about the side of 1 that the ratio is on.
func (r Ratio) Clear() bool {
	outside := r.Hi < 1 || r.Lo > 1
	return outside && (r.Pairs >= pairsMany || r.Pairs >= pairsFew && r.Apart)
}
