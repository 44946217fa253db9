package report

import (
	"bytes"
	"fmt"
	"io"

	"github.com/percore/percore/cmd/percore/internal/bench"
)

// Changes writes how two builds differ, and returns how many figures are worse. Figures within the
// limit are left out, unless all is set.
func Changes(w io.Writer, rep *bench.Report, all bool) (worse int, err error) {
	var out bytes.Buffer
	writeFacts(&out, rep)
	rows := [][]string{{"", "arm", "", "before", "now", "now / before"}}
	var counts [3]int // by the Verdict
	for _, c := range rep.Changes() {
		if counts[c.Verdict]++; c.Verdict == bench.Undecided && !all {
			continue
		}
		rows = append(rows, []string{c.Scenario, c.Arm, c.Metric.Name, format(c.Before, c.Metric.Unit), format(c.After, c.Metric.Unit),
			fmt.Sprintf("%.3f", c.After/c.Before), c.Verdict.String()})
	}
	columns(&out, rows)
	for i := range rep.Results {
		if res := &rep.Results[i]; res.Err != "" {
			fmt.Fprintln(&out, res.Scenario, "FAILED:", res.Err)
		}
	}
	fmt.Fprintf(&out, "%d figures are better, %d worse, %d within the limit\n",
		counts[bench.Better], counts[bench.Worse], counts[bench.Undecided])
	_, err = w.Write(out.Bytes())
	return counts[bench.Worse], err
}
