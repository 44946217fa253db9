package report

import (
	"fmt"
	"math"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/stats"
)

// format prints a figure with three digits and its unit, or "-" if there is no figure.
func format(v float64, u bench.Unit) string {
	if math.IsNaN(v) {
		return "-"
	}
	switch u {
	case bench.Nanoseconds:
		return scaled(v, 1000, "ns", "µs", "ms", "s")
	case bench.Bytes:
		return scaled(v, 1024, "B", "KiB", "MiB", "GiB")
	case bench.Percent:
		return fmt.Sprintf("%.1f%%", v)
	case bench.PerSecond:
		return digits(v)
	}
	return fmt.Sprintf("%.2f", v)
}

// scaled divides v by base until it is below base, and appends the corresponding unit.
func scaled(v, base float64, units ...string) string {
	i := 0
	for i < len(units)-1 && math.Abs(v) >= base {
		v /= base
		i++
	}
	return digits(v) + units[i]
}

// digits prints at least three digits, and always all digits before the point.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// median prints the median of an arm's samples, and the spread of several.
func median(v []float64, u bench.Unit) string {
	m := stats.Median(v)
	if len(v) < 2 || m == 0 {
		return format(m, u)
	}
	lo, hi := stats.Interval(v)
	return fmt.Sprintf("%s ±%.0f%%", format(m, u), 100*(hi-lo)/2/math.Abs(m))
}
