package page

import (
	_ "embed"
	"html/template"
	"io"
	"strings"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/report"
)

//go:embed report.gohtml
var pageSource string

// page is the template of the report. It doesn't have a script or refer to anything outside itself;
// its content security policy makes the browser enforce that.
var page = template.Must(template.New("report").Parse(pageSource))

// pageData is the template's input.
type pageData struct {
	Rep      *bench.Report
	Title    string
	Facts    []report.Fact
	Summary  []string
	Charts   []template.HTML
	Pairs    []report.Pair
	Rows     []pageRow
	Scenario []pageScenario
}

// pageRow is a line of the results: one metric of one scenario.
type pageRow struct {
	Scenario string // "" if it is the same as in the line above
	Span     int    // number of lines that Scenario is for
	Note     string // instead of figures
	Metric   string
	Arms     []string
	Compared []pageComparison
}

// pageComparison is one ratio.
type pageComparison struct{ Ratio, Verdict, Class string }

// pageScenario is a scenario with all its metrics.
type pageScenario struct {
	Name  string
	Chart template.HTML
	Rows  []pageRow
}

// HTML writes the report as a page that needs no network.
func HTML(w io.Writer, rep *bench.Report) error {
	data := pageData{Rep: rep, Title: pageTitle(rep), Facts: report.Facts(rep), Summary: report.Summary(rep), Pairs: report.Pairs(rep)}
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
		s := pageScenario{Name: report.Title(res), Rows: metricRows(rep, res, true)}
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

// charts draws the overviews: the comparison, and what the number of processors changes.
func charts(rep *bench.Report) ([]template.HTML, error) {
	var all []template.HTML
	add := func(c template.HTML, err error) error {
		if c != "" {
			all = append(all, c)
		}
		return err
	}
	for _, p := range report.Pairs(rep) {
		for _, name := range []string{bench.MetricCPU, bench.MetricRate, bench.MetricP50, bench.MetricP99, bench.MetricResident} {
			m, _ := bench.MetricNamed(name)
			if err := add(forest(rep, p, m)); err != nil {
				return nil, err
			}
		}
	}
	for _, app := range []string{"http", "echo"} {
		for _, name := range []string{bench.MetricCPU, bench.MetricRate, bench.MetricP99} {
			m, _ := bench.MetricNamed(name)
			if err := add(againstProcessors(rep, app, m)); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// resultRows returns the lines of a scenario in the table of results.
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
		rows[0].Scenario, rows[0].Span = report.Title(res), len(rows)
	}
	return rows
}

// metricRows returns a line per metric.
func metricRows(rep *bench.Report, res *bench.Result, all bool) []pageRow {
	var rows []pageRow
	for _, m := range report.Shown(rep, res, all) {
		row := pageRow{Metric: strings.TrimSpace(m.Label)}
		for _, arm := range rep.Arms {
			row.Arms = append(row.Arms, report.Median(res.Values(arm.Name, m.Name), m.Unit))
		}
		for _, p := range report.Pairs(rep) {
			c := report.Compare(rep, res, p, m)
			row.Compared = append(row.Compared, pageComparison{report.Ratio(c), report.Verdict(c), verdictClass(c)})
		}
		rows = append(rows, row)
	}
	return rows
}

// verdictClass returns the CSS class of a verdict.
func verdictClass(c bench.Comparison) string {
	switch c.Verdict {
	case bench.Better:
		return "better"
	case bench.Worse:
		return "worse"
	}
	return "open"
}
