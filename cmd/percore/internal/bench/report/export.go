package report

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/percore/percore/cmd/percore/internal/bench"
)

// JSON writes everything that was measured, with the latencies of every sample.
func JSON(w io.Writer, rep *bench.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(rep)
}

// CSV writes one line per figure: scenario, arm, round, metric, value.
func CSV(w io.Writer, rep *bench.Report) error {
	out := csv.NewWriter(w)
	out.Write([]string{"scenario", "arm", "round", "metric", "value"})
	eachSample(rep, func(res *bench.Result, arm bench.Arm, round int, s bench.Sample) {
		for _, m := range bench.Metrics() {
			if v, ok := s.Metrics[m.Name]; ok {
				out.Write([]string{res.Scenario, arm.Name, strconv.Itoa(round), m.Name, number(v)})
			}
		}
	})
	out.Flush()
	return out.Error() // the first error of any Write
}

// Benchstat writes the samples in the Go benchmark format
// (golang.org/design/14313-benchmark-format). The arm is the last part of the name, so "benchstat
// -col /arm FILE" compares the arms. The last arm comes first, because benchstat compares the
// others with the first arm it sees.
func Benchstat(w io.Writer, rep *bench.Report) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: github.com/percore/percore/cmd/percore/internal/bench\ncpu: %s\n", rep.Host.OS, rep.Host.Arch, rep.Host.CPU)
	for _, m := range bench.Metrics() {
		better := "lower"
		if m.HigherIsBetter {
			better = "higher"
		}
		fmt.Fprintf(out, "Unit %s better=%s\n", m.Name, better)
	}
	reversed := *rep
	reversed.Arms = slices.Clone(rep.Arms)
	slices.Reverse(reversed.Arms)
	eachSample(&reversed, func(res *bench.Result, arm bench.Arm, _ int, s bench.Sample) {
		name := strings.ToUpper(res.Scenario[:1]) + res.Scenario[1:]
		fmt.Fprintf(out, "Benchmark%s/arm=%s-%d\t1", name, arm.Name, arm.GOMAXPROCS)
		for _, m := range bench.Metrics() {
			if v, ok := s.Metrics[m.Name]; ok {
				fmt.Fprintf(out, "\t%s %s", number(v), m.Name)
			}
		}
		fmt.Fprintln(out)
	})
	return out.Flush()
}

// eachSample calls f for every sample, ordered by scenario, arm and round. Rounds count from 1.
func eachSample(rep *bench.Report, f func(res *bench.Result, arm bench.Arm, round int, s bench.Sample)) {
	for i := range rep.Results {
		for _, arm := range rep.Arms {
			for round, s := range rep.Results[i].Samples[arm.Name] {
				f(&rep.Results[i], arm, round+1, s)
			}
		}
	}
}

// number prints a figure in full.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
