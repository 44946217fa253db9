// Package report writes the measurements of package bench: as a table for people, and as JSON for
// programs.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/stats"
)

// Table writes the report for a terminal. For every scenario it has the medians of each arm, and
// compares the first arm with each other one, wins and losses alike. If all is set it prints all
// metrics, otherwise those that a scenario is about.
func Table(w io.Writer, rep *bench.Report, all bool) error {
	var out bytes.Buffer
	writeFacts(&out, rep)
	for i := range rep.Results {
		writeResult(&out, rep, &rep.Results[i], all)
	}
	writeSummary(&out, rep)
	_, err := w.Write(out.Bytes())
	return err
}

// columns writes rows of cells that line up.
func columns(out io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	tw.Flush()
}

// writeFacts writes where and how the run was measured.
func writeFacts(out io.Writer, rep *bench.Report) {
	h := rep.Host
	cpu := h.CPU
	if cpu == "" {
		cpu = h.Arch
	}
	rows := [][]string{
		{"command", rep.Command},
		{"date", rep.Started.Format(time.RFC1123)},
		{"processor", fmt.Sprintf("%s, %d processors", cpu, h.CPUs)},
		{"memory", format(float64(h.Memory), bench.Bytes)},
		{"kernel", h.Kernel},
		{"Go", h.Go + " " + h.OS + "/" + h.Arch},
		{"percore", h.Version},
	}
	for _, arm := range rep.Arms {
		if arm.GOMAXPROCS > 0 || arm.Env != nil || arm.Executable != "" { // else it is a Program, or took no part
			rows = append(rows, []string{"arm " + arm.Name, armFact(arm)})
		}
	}
	for _, why := range rep.Uncounted {
		rows = append(rows, []string{"not counted", why})
	}
	load := "builtin"
	if rep.SplitCPUs {
		load += ", on processors of its own"
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	columns(out, append(rows,
		[]string{"load", fmt.Sprintf("%s; windows of %v after %v of warm-up, %d per scenario and arm", load, seconds(rep.Window), seconds(rep.Warmup), rep.Rounds)},
		[]string{"took", seconds(rep.Took).Round(time.Second).String()},
	))
	fmt.Fprintln(out)
}

func armFact(arm bench.Arm) string {
	s := "engine net"
	if arm.Engine.Percore {
		s = "engine percore"
	}
	if arm.GOMAXPROCS > 0 { // 0: the scenarios decide
		s += fmt.Sprintf(", GOMAXPROCS %d", arm.GOMAXPROCS)
	}
	for _, e := range arm.Env {
		s += ", " + e
	}
	if arm.Executable != "" {
		s += ", another build"
	}
	return s
}

func writeResult(out io.Writer, rep *bench.Report, res *bench.Result, all bool) {
	switch fmt.Fprint(out, res.Scenario); {
	case res.Rate > 0: // the rate that was found for an open loop
		fmt.Fprintf(out, "  (%s ops/s)\n", digits(res.Rate))
	default:
		fmt.Fprintln(out)
	}
	switch {
	case res.Skipped != "":
		fmt.Fprintln(out, "  not run:", res.Skipped)
	case res.Err != "":
		fmt.Fprintln(out, "  FAILED:", res.Err)
		for line := range strings.Lines(res.Output) {
			fmt.Fprintln(out, "    "+strings.TrimRight(line, "\n"))
		}
	}
	arms := rep.ArmsOf(res)
	if len(arms) == 0 {
		return
	}
	ms := shown(rep, res, all)
	rows, bases := labels("", ms), arms[1:]
	for _, arm := range arms {
		rows[0] = append(rows[0], arm.Name)
		for i, m := range ms {
			rows[i+1] = append(rows[i+1], median(res.Values(arm.Name, m.Name), m.Unit))
		}
	}
	if len(bases) == 1 { // the comparison has room beside the medians
		rows[0] = append(rows[0], arms[0].Name+" / "+bases[0].Name)
		compare(rows[1:], res, arms[0].Name, bases[0].Name, ms)
		bases = nil
	}
	columns(out, rows)
	for bases := range slices.Chunk(bases, basesMax) {
		rows := labels("  "+arms[0].Name, ms)
		for i, base := range bases {
			if i > 0 {
				rows[0] = append(rows[0], "") // above the verdict
			}
			rows[0] = append(rows[0], "/ "+base.Name)
			compare(rows[1:], res, arms[0].Name, base.Name, ms)
		}
		columns(out, rows)
	}
}

// basesMax is how many comparisons a line has, so that it is not longer than 110 columns.
const basesMax = 3

// labels returns the first cells of the rows of metrics, below a row with a head.
func labels(head string, ms []bench.Metric) [][]string {
	rows := [][]string{{head}}
	for _, m := range ms {
		rows = append(rows, []string{"  " + m.Label})
	}
	return rows
}

// compare adds two cells to each row: the median of the pairs' ratios with its interval, and the
// verdict.
func compare(rows [][]string, res *bench.Result, arm, base string, ms []bench.Metric) {
	for i, m := range ms {
		if r, verdict := res.Compare(arm, base, m); r.Pairs > 0 {
			rows[i] = append(rows[i], fmt.Sprintf("%.3f [%.3f %.3f]", r.Median, r.Lo, r.Hi), verdict.String())
		} else {
			rows[i] = append(rows[i], "-", "")
		}
	}
}

// shown returns which metrics of a result to print: the metrics it is about, or all that any arm has.
func shown(rep *bench.Report, res *bench.Result, all bool) (ms []bench.Metric) {
	for _, m := range bench.Metrics() {
		measured := func(arm bench.Arm) bool { return len(res.Values(arm.Name, m.Name)) > 0 }
		if slices.Contains(res.Headline, m.Name) || all && slices.ContainsFunc(rep.Arms, measured) {
			ms = append(ms, m)
		}
	}
	return ms
}

// tally is the verdicts on the first arm of scenarios against another one.
type tally struct {
	counts [3]int   // by the Verdict
	lost   []string // the scenarios and metrics in which it is worse
}

func (t *tally) add(rep *bench.Report, res *bench.Result, arm, base string) {
	for _, m := range shown(rep, res, false) {
		r, verdict := res.Compare(arm, base, m)
		if r.Pairs == 0 {
			continue
		}
		if t.counts[verdict]++; verdict == bench.Worse {
			t.lost = append(t.lost, res.Scenario+" "+m.Label)
		}
	}
}

// otherMax is the percentage of the machine that other processes may use before the report warns.
const otherMax = 5

// writeSummary counts the verdicts, names the losses and adds the warnings.
func writeSummary(out io.Writer, rep *bench.Report) {
	var names []string
	tallies := make(map[string]*tally)
	busiest := 0.0 // of all medians
	for i := range rep.Results {
		res := &rep.Results[i]
		for i, arm := range rep.ArmsOf(res) {
			if m := stats.Median(res.Values(arm.Name, bench.MetricOther)); m > busiest {
				busiest = m
			}
			if i == 0 {
				continue
			}
			first := rep.ArmsOf(res)[0].Name
			name := first + " against " + arm.Name
			if tallies[name] == nil {
				names, tallies[name] = append(names, name), new(tally)
			}
			tallies[name].add(rep, res, first, arm.Name)
		}
	}
	for _, name := range names {
		t := tallies[name]
		fmt.Fprintf(out, "%s: %d better, %d worse, %d ≈ (the spread leaves it open)\n",
			name, t.counts[bench.Better], t.counts[bench.Worse], t.counts[bench.Undecided])
		for _, what := range t.lost {
			fmt.Fprintln(out, "  worse in", what)
		}
	}
	if busiest > otherMax {
		fmt.Fprintf(out, "other processes used up to %.0f%% of the machine: these figures are disturbed\n", busiest)
	}
	if rep.Stopped != "" {
		fmt.Fprintln(out, "stopped before the end:", rep.Stopped)
	}
}

// JSON writes everything that was measured, with the latencies of every sample.
func JSON(w io.Writer, rep *bench.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(rep)
}
