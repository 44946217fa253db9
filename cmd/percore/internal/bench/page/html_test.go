package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/percore/percore/cmd/percore/internal/bench/example"
)

// page returns the page for the example.
func examplePage(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, example.Report()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHTMLSelfContained(t *testing.T) {
	page := examplePage(t)
	// Namespaces are names, not addresses.
	names := strings.NewReplacer("http://www.w3.org/2000/svg", "", "http://www.w3.org/1999/xlink", "")
	if at := regexp.MustCompile(`(?i)https?://|<script|<link|<img|<iframe|@import|url\(`).FindString(names.Replace(page)); at != "" {
		t.Errorf("the page has %q in it", at)
	}
	for _, want := range []string{
		"A &lt;fast&gt; processor", "&lt;&amp;&gt;", "go1.26", "Linux 6.18", "GOMAXPROCS 2, 2 loops", "A=b",
		"failed: the net server died", "not run: too many open files",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page hasn't %q", want)
		}
	}
}

// TestHTMLOfLittle: a single arm has nothing to be compared with, and a run that ended by Ctrl-C in the
// first sample has no results.
func TestHTMLOfLittle(t *testing.T) {
	rep := example.Report()
	rep.Arms = rep.Arms[:1]
	if err := HTML(&bytes.Buffer{}, rep); err != nil {
		t.Errorf("one arm: %v", err)
	}
	rep.Results = nil
	if err := HTML(&bytes.Buffer{}, rep); err != nil {
		t.Errorf("no results: %v", err)
	}
}

// TestHTMLScale: the cost against the number of processors is a chart for each of the three metrics.
func TestHTMLScale(t *testing.T) {
	rep := example.Report()
	first := rep.Results[0]
	rep.Results = nil
	for _, procs := range []int{1, 2, 4} {
		step := first
		step.Scenario, step.Procs = fmt.Sprintf("scale/http/procs=%d", procs), procs
		rep.Results = append(rep.Results, step)
	}
	var b bytes.Buffer
	if err := HTML(&b, rep); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), "against processors, http\""); got != 3 {
		t.Errorf("got %d charts against processors, want 3", got)
	}
}

// TestHTMLCharts parses every chart as XML: a browser would make the best of a
// broken one.
func TestHTMLCharts(t *testing.T) {
	charts := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(examplePage(t), -1)
	// cpu, rate, p50, p99, resident memory, two latencies.
	if len(charts) != 7 {
		t.Errorf("%d charts, want 7", len(charts))
	}
	for _, c := range charts {
		dec := xml.NewDecoder(strings.NewReader(c))
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("a chart is no XML: %v\n%.200s", err, c)
				break
			}
		}
	}
}
