package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/percore/percore/bench"
)

//go:embed report.gohtml
var pageSource string

// page is the template of the report. It has no script and refers to nothing
// outside itself; its content security policy makes the browser see to that.
var page = template.Must(template.New("report").Parse(pageSource))

// pageData is the template's input.
type pageData struct {
	Rep      *bench.Report
	Title    string
	Facts    []fact
	Summary  []string
	Charts   []template.HTML
	Pairs    []pair
	Rows     []pageRow
	Scenario []pageScenario
}

// fact is a line of the table about machine and run.
type fact struct{ Name, Value string }

// pageRow is a line of the results: one metric of one scenario.
type pageRow struct {
	Scenario string // "" where it is the line above's
	Span     int    // lines that Scenario stands for
	Note     string // instead of figures
	Metric   string
	Arms     []string
	Compared []pageComparison
}

// pageComparison is one ratio.
type pageComparison struct{ Ratio, Verdict, Class string }

// pageScenario is all metrics of one scenario.
type pageScenario struct {
	Name  string
	Chart template.HTML
	Rows  []pageRow
}

// HTML writes the report as a page that needs no network.
func HTML(w io.Writer, rep *bench.Report) error {
	data := pageData{Rep: rep, Title: pageTitle(rep), Facts: facts(rep), Summary: summary(rep), Pairs: pairs(rep)}
	var err error
	if data.Charts, err = charts(rep); err != nil {
		return err
	}
	for i := range rep.Results {
		res := &rep.Results[i]
		data.Rows = append(data.Rows, resultRows(rep, res)...)
		if !res.Measured() {
			continue
		}
		s := pageScenario{Name: title(res), Rows: metricRows(rep, res, true)}
		if s.Chart, err = latencies(rep, res); err != nil {
			return err
		}
		data.Scenario = append(data.Scenario, s)
	}
	return page.Execute(w, data)
}

// pageTitle names the arms that were compared.
func pageTitle(rep *bench.Report) string {
	var names []string
	for _, arm := range rep.Arms {
		names = append(names, arm.Name)
	}
	return "percore bench: " + strings.Join(names, " and ")
}

// charts draws the overviews: the comparison, and the memory of idle connections.
func charts(rep *bench.Report) ([]template.HTML, error) {
	var all []template.HTML
	add := func(c template.HTML, err error) error {
		if c != "" {
			all = append(all, c)
		}
		return err
	}
	for _, p := range pairs(rep) {
		for _, name := range []string{bench.MetricCPU, bench.MetricRate, bench.MetricP50, bench.MetricP99, bench.MetricResident} {
			m, _ := bench.MetricNamed(name)
			if err := add(forest(rep, p, m)); err != nil {
				return nil, err
			}
		}
	}
	m, _ := bench.MetricNamed(bench.MetricResident)
	if err := add(bars(rep, m)); err != nil {
		return nil, err
	}
	return all, nil
}

// facts lists the machine, the programs and how it was measured.
func facts(rep *bench.Report) []fact {
	h := rep.Host
	cpu := h.CPU
	if cpu == "" {
		cpu = h.Arch
	}
	all := []fact{
		{"command", rep.Command},
		{"date", rep.Started.Format(time.RFC1123)},
		{"processor", fmt.Sprintf("%s, %d processors", cpu, h.CPUs)},
		{"memory", scaled(float64(h.Memory), 1024, "B", "KiB", "MiB", "GiB")},
		{"kernel", h.Kernel},
		{"Go", h.Go + " " + h.OS + "/" + h.Arch},
		{"percore", h.Version},
	}
	for _, arm := range rep.Arms {
		all = append(all, fact{"arm " + arm.Name, armFact(arm)})
	}
	return append(all,
		fact{"load", fmt.Sprintf("%s; windows of %v after %v of warm-up, %d per scenario and arm", loadWords(rep), seconds(rep.Window), seconds(rep.Warmup), rep.Rounds)},
		fact{"took", time.Duration(rep.Took * float64(time.Second)).Round(time.Second).String()},
	)
}

// loadWords names the load generator and its place.
func loadWords(rep *bench.Report) string {
	if rep.SplitCPUs {
		return rep.Client + ", on processors of its own"
	}
	return rep.Client
}

// seconds is a number of seconds as a duration.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// armFact describes an arm.
func armFact(arm bench.Arm) string {
	s := fmt.Sprintf("engine %s, GOMAXPROCS %d", arm.Engine.Name, arm.GOMAXPROCS)
	if arm.Loops > 0 {
		s += fmt.Sprintf(", %d loops", arm.Loops)
	}
	for _, e := range arm.Env {
		s += ", " + e
	}
	if arm.Executable != "" {
		s += ", another build"
	}
	return s
}

// resultRows is a scenario's lines in the table of results.
func resultRows(rep *bench.Report, res *bench.Result) []pageRow {
	var rows []pageRow
	switch {
	case res.Skipped != "":
		rows = append(rows, pageRow{Note: "not run: " + res.Skipped})
	case res.Err != "":
		rows = append(rows, pageRow{Note: "failed: " + res.Err})
	}
	if res.Measured() {
		rows = append(rows, metricRows(rep, res, false)...)
	}
	if len(rows) > 0 {
		rows[0].Scenario, rows[0].Span = title(res), len(rows)
	}
	return rows
}

// metricRows is a line per metric.
func metricRows(rep *bench.Report, res *bench.Result, all bool) []pageRow {
	var rows []pageRow
	for _, m := range shown(rep, res, all) {
		row := pageRow{Metric: strings.TrimSpace(m.Label)}
		for _, arm := range rep.Arms {
			row.Arms = append(row.Arms, median(res.Values(arm.Name, m.Name), m.Unit))
		}
		for _, p := range pairs(rep) {
			c := compare(rep, res, p, m)
			row.Compared = append(row.Compared, pageComparison{ratio(c), verdict(c), verdictClass(c)})
		}
		rows = append(rows, row)
	}
	return rows
}

// verdictClass is the CSS class of a verdict.
func verdictClass(c bench.Comparison) string {
	switch c.Verdict {
	case bench.Better:
		return "better"
	case bench.Worse:
		return "worse"
	}
	return "open"
}
