package page

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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

// TestHTMLWriteError: a page that can't be written is an error.
func TestHTMLWriteError(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	if err := HTML(w, example.Report()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want %v", err, io.ErrClosedPipe)
	}
}

// TestHTMLCharts parses every chart as XML: a browser would make the best of a
// broken one.
func TestHTMLCharts(t *testing.T) {
	charts := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(examplePage(t), -1)
	// cpu, rate, p50, p99, resident memory compared and in bars, two latencies.
	if len(charts) != 8 {
		t.Errorf("%d charts, want 8", len(charts))
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

// browsers are the names under which a headless browser may be installed.
var browsers = []string{"chromium", "chromium-browser", "google-chrome"}

// browserMax is how long a browser may take to show the page: it is a heavy
// program, and the machine may have other things to do.
const browserMax = 2 * time.Minute

// browse runs a headless browser on a page and returns its output. It skips the
// test if there is no browser.
func browse(t *testing.T, page string, args ...string) []byte {
	t.Helper()
	exe := ""
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil {
			exe = path
			break
		}
	}
	if exe == "" {
		t.Skip("no headless browser here: install chromium to see the page in one")
	}
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), browserMax)
	defer cancel()
	args = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir=" + t.TempDir(), "--window-size=1200,4000", "--hide-scrollbars",
	}, append(args, "file://"+path)...)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.WaitDelay = time.Second // its helpers may hold the pipe
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s: %v\n%s", exe, err, stderr.Bytes())
	}
	return out
}

// TestHTMLInBrowser lets a browser lay the page out and asks it for the result.
// The script that asks is the test's; the page itself forbids any.
func TestHTMLInBrowser(t *testing.T) {
	page := regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>`).ReplaceAllString(examplePage(t), "")
	page = strings.Replace(page, "</body>", `<script>
const seen = e => { const r = e.getBoundingClientRect(); return r.width > 300 && r.height > 60 && e.querySelectorAll("path").length > 5 && e.querySelectorAll("text").length > 2 };
const charts = [...document.querySelectorAll("figure.chart svg")];
const table = document.querySelector("#results");
document.querySelectorAll("details").forEach(d => d.open = true);
const latency = [...document.querySelectorAll("figure.latency svg")];
document.title = ["seen", charts.filter(seen).length, charts.length, latency.filter(seen).length, latency.length,
	table.rows.length, table.getBoundingClientRect().width > 500,
	table.querySelectorAll(".better").length, table.querySelectorAll(".worse").length].join(" ");
</script></body>`, 1)
	dom := browse(t, page, "--dump-dom")
	got := regexp.MustCompile(`<title>(.*?)</title>`).FindSubmatch(dom)
	// All charts seen; a header, 4+4+3 metrics, a failure and one not run; the
	// verdicts of TestTable.
	const want = "seen 6 6 2 2 14 true 4 2"
	if got == nil || string(got[1]) != want {
		t.Errorf("the browser says %q, want %q", got, want)
	}
}

// TestHTMLPicture looks for the colors of the charts on the page as it comes.
func TestHTMLPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.png")
	browse(t, examplePage(t), "--screenshot="+file)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	counts := countColors(img)
	for what, c := range map[string]color.Color{"the first arm's bars": armColor(0), "the second arm's bars": armColor(1)} {
		if n := counts[color.NRGBAModel.Convert(c)]; n < 200 {
			t.Errorf("%d pixels have the color of %s, want some hundreds", n, what)
		}
	}
}

// countColors counts the pixels of each color.
func countColors(img image.Image) map[color.Color]int {
	counts := map[color.Color]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			counts[color.NRGBAModel.Convert(img.At(x, y))]++
		}
	}
	return counts
}
