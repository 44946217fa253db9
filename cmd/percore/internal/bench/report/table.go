// Package report writes the measurements of package bench: as a table for people, and as JSON for
// programs.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/stats"
)

// Table writes the report for a terminal. For every scenario it has the medians of each arm, and
// compares the first arm with each other one, wins and losses alike, below the medians if there are
// several. If all is set, it prints all metrics and not only the metrics that a scenario is about.
func Table(w io.Writer, rep *bench.Report, all bool) error {
	g := &grid{}
	tableFacts(g, Facts(rep))
	for i := range rep.Results {
		tableResult(g, rep, &rep.Results[i], all)
	}
	out := bufio.NewWriter(w)
	g.write(out)
	for _, line := range Summary(rep) {
		column := 0
		for part := range strings.SplitAfterSeq(line, ", ") {
			if column += utf8.RuneCountInString(part); column > lineMax {
				column = len("  ") + utf8.RuneCountInString(part)
				fmt.Fprint(out, "\n  ")
			}
			fmt.Fprint(out, part)
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// lineMax is how long lines are, except where a name or an error is longer.
const lineMax = 110

// tableFacts adds to g where and how the run was measured.
func tableFacts(g *grid, all []Fact) {
	width := 0
	for _, f := range all {
		width = max(width, len(f.Name))
	}
	for _, f := range all {
		g.title(fmt.Sprintf("%-*s  %s", width, f.Name, f.Value))
	}
	g.title("")
}

// tableResult adds one scenario to g.
func tableResult(g *grid, rep *bench.Report, res *bench.Result, all bool) {
	g.title(Title(res))
	switch {
	case res.Skipped != "":
		g.title("  not run: " + res.Skipped)
	case res.Err != "":
		g.title("  FAILED: " + res.Err)
		for line := range strings.Lines(res.Output) {
			g.title("    " + strings.TrimRight(line, "\n"))
		}
	}
	if !res.Measured() {
		return
	}
	arms, shown := rep.ArmsOf(res), Shown(rep, res, all)
	rows, bases := make([][]string, 1+len(shown)), arms[1:]
	for _, arm := range arms {
		rows[0] = append(rows[0], arm.Name)
		for i, m := range shown {
			rows[i+1] = append(rows[i+1], Median(res.Values(arm.Name, m.Name), m.Unit))
		}
	}
	if len(bases) == 1 { // the comparison has room beside the medians
		ratios := compare(res, arms[0].Name, bases, shown)
		for i := range rows {
			rows[i] = append(rows[i], ratios[i]...)
		}
		rows[0][2], bases = Pair{arms[0].Name, arms[1].Name}.String(), nil
	}
	add := func(rows [][]string, head string, add func(...string)) {
		add(append([]string{head}, rows[0]...)...)
		for i, m := range shown {
			add(append([]string{"  " + m.Label}, rows[i+1]...)...)
		}
	}
	add(rows, "", g.row)
	for bases := range slices.Chunk(bases, basesMax) {
		add(compare(res, arms[0].Name, bases, shown), "  "+arms[0].Name, g.ratios)
	}
}

// basesMax is how many comparisons a line has, so that it isn't longer than lineMax.
const basesMax = 3

// compare returns the cells of comparisons of an arm with others, below a line with their names.
func compare(res *bench.Result, arm string, bases []bench.Arm, shown []bench.Metric) [][]string {
	rows := make([][]string, 1+len(shown))
	for _, base := range bases {
		rows[0] = append(rows[0], "/ "+base.Name, "")
		for i, m := range shown {
			c := res.Compare(arm, base.Name, m)
			rows[i+1] = append(rows[i+1], Ratio(c), Verdict(c))
		}
	}
	return rows
}

// Title names a scenario, with the rate that was found for an open loop.
func Title(res *bench.Result) string {
	if res.Rate > 0 {
		return fmt.Sprintf("%s  (%s ops/s)", res.Scenario, digits(res.Rate))
	}
	return res.Scenario
}

// Shown returns which metrics of a result to print: the metrics it is about, or all that any arm
// has.
func Shown(rep *bench.Report, res *bench.Result, all bool) []bench.Metric {
	var ms []bench.Metric
	if !all {
		for _, name := range res.Headline {
			if m, ok := bench.MetricNamed(name); ok {
				ms = append(ms, m)
			}
		}
		return ms
	}
	for _, m := range bench.Metrics() {
		for _, arm := range rep.Arms {
			if len(res.Values(arm.Name, m.Name)) > 0 {
				ms = append(ms, m)
				break
			}
		}
	}
	return ms
}

// A Pair is two arms that are compared.
type Pair struct{ Arm, Base string }

// String returns both names, as the head of a column.
func (p Pair) String() string { return p.Arm + " / " + p.Base }

// pairsOf returns the pairs of one scenario.
func pairsOf(rep *bench.Report, res *bench.Result) []Pair {
	var all []Pair
	arms := rep.ArmsOf(res)
	for i := 1; i < len(arms); i++ {
		all = append(all, Pair{arms[0].Name, arms[i].Name})
	}
	return all
}

// Pairs returns the pairs of all scenarios.
func Pairs(rep *bench.Report) []Pair {
	var all []Pair
	for i := range rep.Results {
		for _, p := range pairsOf(rep, &rep.Results[i]) {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// Compare compares the arms of p in one metric of a scenario. The comparison is empty if the
// scenario compares other arms.
func Compare(rep *bench.Report, res *bench.Result, p Pair, m bench.Metric) bench.Comparison {
	if !slices.Contains(pairsOf(rep, res), p) {
		return bench.Comparison{}
	}
	return res.Compare(p.Arm, p.Base, m)
}

// otherMax is the share of the machine, in percent, that other processes may use before the report
// warns of a disturbance.
const otherMax = 5

// summary counts the verdicts, names the losses and adds the warnings.
func Summary(rep *bench.Report) []string {
	var lines []string
	for _, p := range Pairs(rep) {
		count, lost := tally(rep, p)
		line := fmt.Sprintf("%s against %s: %d better, %d worse, %d ≈ (the spread leaves it open)",
			p.Arm, p.Base, count[bench.Better], count[bench.Worse], count[bench.Undecided])
		if len(lost) > 0 {
			line += "; worse in " + strings.Join(lost, ", ")
		}
		lines = append(lines, line)
	}
	if busiest := busiest(rep); busiest > otherMax {
		lines = append(lines, fmt.Sprintf("other processes used up to %.0f%% of the machine: these figures are disturbed", busiest))
	}
	if rep.Stopped != "" {
		lines = append(lines, "stopped before the end: "+rep.Stopped)
	}
	return lines
}

// tally counts the verdicts on the headline metrics of p, and names the scenarios and metrics that
// are worse.
func tally(rep *bench.Report, p Pair) (count map[bench.Verdict]int, lost []string) {
	count = map[bench.Verdict]int{}
	for i := range rep.Results {
		res := &rep.Results[i]
		for _, m := range Shown(rep, res, false) {
			c := Compare(rep, res, p, m)
			if c.Ratio.Pairs == 0 {
				continue
			}
			if count[c.Verdict]++; c.Verdict == bench.Worse {
				lost = append(lost, res.Scenario+" "+m.Label)
			}
		}
	}
	return count, lost
}

// busiest returns the largest of all medians of bench.MetricOther.
func busiest(rep *bench.Report) float64 {
	most := 0.0
	for i := range rep.Results {
		for _, arm := range rep.Arms {
			if m := stats.Median(rep.Results[i].Values(arm.Name, bench.MetricOther)); m > most {
				most = m
			}
		}
	}
	return most
}

// grid is rows of cells. Its columns line up over the whole table, those of comparisons that have rows
// of their own apart. Titles between the rows don't affect the columns.
type grid struct {
	rows            []gridRow
	widths, ofRatio []int
}

type gridRow struct {
	title  string
	cells  []string // nil for a title
	widths *[]int
}

func (g *grid) title(s string) { g.rows = append(g.rows, gridRow{title: s}) }

func (g *grid) row(cells ...string) { g.add(&g.widths, cells) }

func (g *grid) ratios(cells ...string) { g.add(&g.ofRatio, cells) }

func (g *grid) add(widths *[]int, cells []string) {
	for len(*widths) < len(cells) {
		*widths = append(*widths, 0)
	}
	for i, c := range cells {
		(*widths)[i] = max((*widths)[i], utf8.RuneCountInString(c))
	}
	g.rows = append(g.rows, gridRow{cells: cells, widths: widths})
}

// write prints the grid. The first and the last column are aligned to the left, the others to the
// right.
func (g *grid) write(w io.Writer) {
	for _, r := range g.rows {
		if r.cells == nil {
			fmt.Fprintln(w, r.title)
			continue
		}
		var line strings.Builder
		for i, c := range r.cells {
			pad := strings.Repeat(" ", (*r.widths)[i]-utf8.RuneCountInString(c))
			switch {
			case i == 0:
				line.WriteString(c + pad)
			case i == len(r.cells)-1:
				line.WriteString("  " + c)
			default:
				line.WriteString("  " + pad + c)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// JSON writes everything that was measured, with the latencies of every sample.
func JSON(w io.Writer, rep *bench.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(rep)
}
