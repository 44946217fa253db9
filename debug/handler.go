package debug

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/percore/percore"
)

// Handler returns a handler for the page, at whatever path. Depending on the query it serves
//
//	(none)        the page
//	format=json   the metrics as JSON: an object with Time (RFC 3339), Goroutines, and Stats,
//	              which is percore.Stats
//	format=parts  the changing part of the page, for its script
//	file=NAME     the page's script and its style sheet
//
// for GET and HEAD. The page loads nothing from other sites, and its Content-Security-Policy says
// so: it works under a policy that allows only scripts and styles of the same origin. Without
// scripts it shows the current metrics. Requests that pages of other origins make a browser send are
// refused with status 403.
func Handler() http.Handler { return RefuseCrossOrigin(http.HandlerFunc(serve)) }

// policy allows what the page needs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed page.html page.css page.js
var files embed.FS

var page = template.Must(template.New("").Funcs(template.FuncMap{
	"count": count, "bytes": byteCount, "time": seconds, "round": math.Round, "skipped": skipped, "ratio": ratio,
}).ParseFS(files, "page.html"))

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This page is for GET and HEAD.", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	query := r.URL.Query()
	switch format, file := query.Get("format"), query.Get("file"); {
	case file != "":
		serveFile(w, file)
	case format == "json":
		serveJSON(w)
	case format == "parts":
		serveTemplate(w, "parts")
	case format == "":
		serveTemplate(w, "page")
	default:
		http.Error(w, "The formats are json and parts; none is the page.", http.StatusBadRequest)
	}
}

// serveFile serves the script or the style sheet.
func serveFile(w http.ResponseWriter, name string) {
	types := map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
	if types[name] == "" {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	data, err := files.ReadFile(name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", types[name])
	_, _ = w.Write(data) // fails only if the client is gone
}

func serveJSON(w http.ResponseWriter) {
	text, err := json.MarshalIndent(struct {
		Time       time.Time
		Goroutines int
		Stats      percore.Stats
	}{time.Now(), runtime.NumGoroutine(), percore.ReadStats()}, "", "\t")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}

// serveTemplate renders a template completely before it sends the first byte.
func serveTemplate(w http.ResponseWriter, name string) {
	var out bytes.Buffer
	if err := page.ExecuteTemplate(&out, name, newView(percore.ReadStats())); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}

// view is the content of the page.
type view struct {
	percore.Stats
	Program, Version string
	Build            string // the version of the program's module
	PID, Processors  int
	Uptime           time.Duration
	Files, FilesMax  int // descriptors that are open and that may be; 0: unknown
	Now              time.Time
	Goroutines       int
	Charts           []chart
	HasLoops         bool // false off Linux
	Most             int  // descriptors of the fullest loop
}

// A chart shows a metric over the last minute. The script keeps its history, and shows the increase
// per second if Value is a counter.
type chart struct {
	ID, Title, Unit string
	Value           float64
	Counter         bool // the increase per second is shown
	Ratio           bool // the increase is divided by that of Per instead
	Per             float64
}

func newView(s percore.Stats) view {
	v := view{
		Stats: s, Program: filepath.Base(os.Args[0]), Version: runtime.Version(),
		Build: build(), PID: os.Getpid(), Processors: runtime.GOMAXPROCS(0), Uptime: time.Since(started),
		Now: time.Now(), Goroutines: runtime.NumGoroutine(), HasLoops: len(s.Loops.Groups) > 0,
	}
	v.Files, v.FilesMax = descriptors()
	for _, g := range s.Loops.Groups {
		for _, l := range g.PerLoop {
			v.Most = max(v.Most, l.Descriptors)
		}
	}
	v.Charts = []chart{
		{ID: "open", Title: "open connections", Value: float64(s.Conns)},
		{ID: "accepted", Title: "accepted", Unit: "/s", Value: float64(s.Accept.Accepted), Counter: true},
		{ID: "closed", Title: "closed", Unit: "/s", Value: float64(s.Closed), Counter: true},
		{ID: "events", Title: "events", Unit: "/s", Value: float64(s.Loops.Events), Counter: true},
		{ID: "wakeups", Title: "wake-ups", Unit: "/s", Value: float64(s.Loops.Wakeups), Counter: true},
		{ID: "ratio", Title: "events per wake-up", Value: float64(s.Loops.Events), Counter: true, Per: float64(s.Loops.Wakeups), Ratio: true},
		{ID: "callbacks", Title: "loops in callbacks", Unit: "ms/s", Value: s.Loops.CallbackTime.Seconds() * 1000, Counter: true},
		{ID: "gets", Title: "buffers from the pool", Unit: "/s", Value: float64(s.Pool.Gets), Counter: true},
		{ID: "inuse", Title: "buffers in use", Value: float64(s.Pool.BuffersInUse)},
		{ID: "moved", Title: "moved by the kernel", Unit: "MB/s", Value: float64(s.ZeroCopy.SendfileBytes+s.ZeroCopy.SpliceBytes) / 1e6, Counter: true},
		{ID: "goroutines", Title: "goroutines", Value: float64(v.Goroutines)},
	}
	for _, a := range s.Adapters {
		for _, f := range a.Metrics {
			title, charted := ofAdapters[a.Adapter+" "+f.Name+" "+f.Of]
			if !charted {
				continue
			}
			c := chart{ID: a.Adapter + f.Name, Title: a.Adapter + ": " + title, Value: f.Value}
			if strings.HasSuffix(f.Name, "_total") {
				c.Unit, c.Counter = "/s", true
			}
			v.Charts = append(v.Charts, c)
		}
	}
	return v
}

// ofAdapters lists the adapters' metrics that have a chart, by adapter, name and the label's value,
// with the chart's title.
var ofAdapters = map[string]string{
	"grpc open_calls ":                 "open calls",
	"grpc started_calls_total ":        "calls",
	"grpc_client open_calls ":          "open calls",
	"grpc_client started_calls_total ": "calls",
	"http connections parked":          "parked",
	"http http1_requests_total ":       "requests over HTTP/1",
	"client connections busy":          "busy connections",
	"client requests_total ":           "requests",
	"http2 open_streams ":              "open streams",
	"http2 served_streams_total ":      "served",
	"http2_client open_streams ":       "open streams",
	"http2_client streams_total ":      "streams",
	"reactor connections ":             "connections",
	"reactor data_calls_total ":        "calls of Data",
	"reactor unsent_bytes ":            "unsent bytes",
	"websocket sessions waiting":       "waiting",
	"websocket wakeups_total ":         "wake-ups",
}

// words makes a metric's name readable.
func words(name string) string {
	return strings.ReplaceAll(strings.TrimSuffix(name, "_total"), "_", " ")
}

// Words returns the metric's name for people. The template calls it.
func (v view) Words(f percore.Metric) string {
	name := words(f.Name)
	if f.Label != "" {
		name += ", " + f.Of
	}
	return name
}

// started is when the program was, nearly: its packages are initialized first of all.
var started = time.Now()

// build returns the version of the program's module.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "an unknown version"
	}
	return strings.TrimSpace(info.Main.Path + " " + info.Main.Version)
}

// LowFiles reports whether nine tenths of the descriptors are used. The template calls it.
func (v view) LowFiles() bool { return v.FilesMax > 0 && v.Files > v.FilesMax/10*9 }

// bad are the adapters' metrics that are 0 while all is well, by adapter and name.
var bad = map[string]bool{
	"http tls_unsafe":                true,
	"http foreign_connections_total": true,
	"http2 attacks_total":            true,
	"reactor refused_writes_total":   true,
	"websocket sessions kept":        true,
	"websocket lost_sessions_total":  true,
	"handover given_total failed":    true,
	"handover taken_total failed":    true,
	"handover taken_total orphaned":  true,
}

// Bad reports whether a metric says that something is wrong. The template calls it.
func (v view) Bad(adapter string, f percore.Metric) bool {
	return f.Value != 0 && (bad[adapter+" "+f.Name] || f.Label != "" && bad[adapter+" "+f.Name+" "+f.Of])
}

// Shown reports whether a metric is worth a line. Only parts of a long list that are 0 are not.
func (v view) Shown(f percore.Metric) bool {
	return f.Value != 0 || f.Label != "reason" && f.Label != "code"
}

// count writes a number with its digits in groups of three.
func count(n any) string {
	digits := fmt.Sprint(n)
	if f, ok := n.(float64); ok {
		digits = strconv.FormatFloat(f, 'f', -1, 64)
	}
	whole, rest, _ := strings.Cut(digits, ".")
	var out strings.Builder
	for i, d := range whole {
		if left := len(whole) - i; i > 0 && left%3 == 0 && whole[i-1] != '-' {
			out.WriteString("\u202f") // a narrow space that does not break
		}
		out.WriteRune(d)
	}
	if rest != "" {
		out.WriteString("." + rest)
	}
	return out.String()
}

// byteCount writes a number of bytes in a unit that needs few digits.
func byteCount(n any) string {
	v, err := strconv.ParseFloat(fmt.Sprint(n), 64)
	if err != nil {
		return fmt.Sprint(n)
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if v < 1024 {
			return strconv.FormatFloat(v, 'g', 4, 64) + " " + unit
		}
		v /= 1024
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " TiB"
}

// seconds writes a time with three digits.
func seconds(d time.Duration) string {
	for _, unit := range []time.Duration{time.Hour, time.Second, time.Millisecond, time.Microsecond} {
		if d >= 100*unit {
			return d.Round(unit).String()
		}
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// ratio writes a/b.
func ratio(a, b uint64) string {
	if b == 0 {
		return "–"
	}
	return strconv.FormatFloat(float64(a)/float64(b), 'f', 2, 64)
}

// skipped returns the connections that were lost before Accept returned them.
func skipped(s percore.AcceptStats) uint64 {
	return s.SkippedAborted + s.SkippedProtocol + s.SkippedNetwork
}
