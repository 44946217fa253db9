package report

import (
	"bufio"
	"fmt"
	"io"

	"github.com/percore/percore/cmd/percore/internal/bench"
)

// Changes writes how two builds differ, and returns how many figures are worse. Figures within the
// limit are left out, unless all is set.
func Changes(w io.Writer, rep *bench.Report, all bool) (worse int, err error) {
	g := &grid{}
	tableFacts(g, Facts(rep))
	g.row("", "arm", "", "before", "now", "now / before", "")
	count := map[bench.Verdict]int{}
	for _, c := range rep.Changes() {
		if count[c.Verdict]++; c.Verdict == bench.Undecided && !all {
			continue
		}
		g.row(c.Scenario, c.Arm, c.Metric.Name, Format(c.Before, c.Metric.Unit), Format(c.After, c.Metric.Unit),
			fmt.Sprintf("%.3f", c.After/c.Before), c.Verdict.String())
	}
	for i := range rep.Results {
		if res := &rep.Results[i]; res.Err != "" {
			g.title(res.Scenario + " FAILED: " + res.Err)
		}
	}
	out := bufio.NewWriter(w)
	g.write(out)
	fmt.Fprintf(out, "%d figures are better, %d worse, %d within the limit\n",
		count[bench.Better], count[bench.Worse], count[bench.Undecided])
	return count[bench.Worse], out.Flush()
}
