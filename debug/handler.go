package debug

import (
	"bytes"
	"cmp"
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
	"slices"
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
// for GET and HEAD. The page loads nothing from other sites, and its Content-Security-Policy says so:
// it works under a policy that allows only scripts and styles from the same origin. Without scripts it
// shows the current metrics. It refuses requests that pages from other origins make a browser send,
// with status 403.
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
	case format == "" || format == "parts":
		serveTemplate(w, cmp.Or(format, "page"))
	default:
		http.Error(w, "The formats are json and parts; none is the page.", http.StatusBadRequest)
	}
}

// serveFile serves the script or the style sheet.
func serveFile(w http.ResponseWriter, name string) {
	types := map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
	data, err := files.ReadFile(name)
	if err != nil || types[name] == "" {
		http.Error(w, "There is no such file.", http.StatusNotFound)
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
	if err := page.ExecuteTemplate(&out, name, newView(look())); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}

// view is the content of the page.
type view struct {
	reading
	Facts            []finding
	Wrong, Earlier   []finding
	Program, Version string
	Build            string // the version of the program's module
	PID, Processors  int
	Uptime           time.Duration
	LowFiles         bool
	Questions        []question
	Most             int // descriptors of the fullest loop
}

// newView makes the page of the last reading.
func newView(h history) view {
	r := h.now()
	v := view{
		reading: *r, Wrong: wrong(h), Earlier: earlier(r), Facts: facts(r),
		Program: filepath.Base(os.Args[0]), Version: runtime.Version(),
		Build: build(), PID: os.Getpid(), Processors: runtime.GOMAXPROCS(0), Uptime: time.Since(started),
		LowFiles: scarceFiles(r) > 0,
	}
	for _, g := range v.Loops.Groups {
		for _, l := range g.PerLoop {
			v.Most = max(v.Most, l.Descriptors)
		}
	}
	v.Questions = v.charts()
	return v
}

// Idle reports whether an adapter has never had anything to do: the program links the package, and
// perhaps serves, but no client comes. The template calls it.
func (v view) Idle(a percore.AdapterStats) bool {
	return !slices.ContainsFunc(a.Metrics, func(f percore.Metric) bool {
		return f.Value != 0 && a.Adapter+" "+f.Name != "grpc serve_calls"
	})
}

// ByTraffic returns the adapters, idle ones last. The template calls it.
func (v view) ByTraffic() []percore.AdapterStats {
	busy := slices.DeleteFunc(slices.Clone(v.Adapters), v.Idle)
	idle := slices.DeleteFunc(slices.Clone(v.Adapters), func(a percore.AdapterStats) bool { return !v.Idle(a) })
	return append(busy, idle...)
}

// Words returns the metric's name in plain words; its Help says more. The template calls it.
func (view) Words(f percore.Metric) string {
	words := strings.ReplaceAll(strings.TrimSuffix(f.Name, "_total"), "_", " ")
	if f.Label != "" {
		words += ", " + f.Of
	}
	return words
}

// started is nearly when the program was started: packages are initialized first.
var started = time.Now()

// build returns the version of the program's module.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "an unknown version"
	}
	return strings.TrimSpace(info.Main.Path + " " + info.Main.Version)
}

// Bad reports whether a metric says that something is wrong. The template calls it.
func (v view) Bad(adapter string, f percore.Metric) bool {
	name := adapter + " " + f.Name
	return f.Value != 0 && slices.ContainsFunc(checks, func(c check) bool {
		return c.metric != "" && (c.metric == name || f.Of != "" && c.metric == name+" "+f.Of)
	})
}

// Shown reports whether a metric is worth a line. Only parts of a long list are not, while they are 0.
func (v view) Shown(f percore.Metric) bool {
	return f.Value != 0 || f.Label != "reason" && f.Label != "code"
}

// count writes a number with its digits in groups of three.
func count(n any) string {
	digits := fmt.Sprint(n)
	if f, ok := n.(float64); ok {
		digits = strconv.FormatFloat(f, 'f', -1, 64)
	}
	whole, rest, isFraction := strings.Cut(digits, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:] // a narrow space that does not break
	}
	if isFraction {
		return whole + "." + rest
	}
	return whole
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
