package main

import (
	"math"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestRate: processors that share nothing don't hold each other up, and those that share something
// reach the rate at which it is never free.
func TestRate(t *testing.T) {
	const line = 50
	for name, c := range map[string]struct {
		path path
		n    int
		want float64 // requests a nanosecond
	}{
		"one":                     {path{"", 1000, []section{{"a", 0, 100, 2}}}, 1, 1.0 / 1200},
		"nothing shared":          {path{"", 1000, []section{{"a", 1, 100, 1}}}, 64, 64.0 / 1100},
		"few, which seldom meet":  {path{"", 100_000, []section{{"a", 0, 10, 1}}}, 4, 4.0 / 100_060},
		"never free":              {path{"", 1000, []section{{"a", 0, 100, 1}}}, 64, 1.0 / 150},
		"never free, twice":       {path{"", 1000, []section{{"a", 0, 100, 2}}}, 64, 0.5 / 150},
		"two, of which one is so": {path{"", 1000, []section{{"a", 0, 10, 1}, {"b", 0, 100, 1}}}, 64, 1.0 / 150},
		"one for four":            {path{"", 100, []section{{"a", 4, 1000, 1}}}, 64, 16.0 / 1050},
	} {
		if got := c.path.rate(c.n, line); math.Abs(got/c.want-1) > 0.03 {
			t.Errorf("%s: %v requests a nanosecond, want %v", name, got, c.want)
		}
	}
}

func TestWrite(t *testing.T) {
	var b strings.Builder
	write(&b, 60)
	for _, p := range paths {
		if !strings.Contains(b.String(), p.name+" ") {
			t.Errorf("no line for %q in\n%s", p.name, b.String())
		}
	}
}
