package debug

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	_ "github.com/percore/percore/adapters/httpadapter"      // for its metrics
	_ "github.com/percore/percore/adapters/reactor"          // the same
	_ "github.com/percore/percore/adapters/wsadapter/moving" // the same
	_ "github.com/percore/percore/admission"                 // the same
	_ "github.com/percore/percore/handover"                  // the same
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
	_ "github.com/percore/percore/tlsfiles" // the same
)

func TestMain(m *testing.M) { testnet.Main(m) }

// get sends a request to the handler, which is mounted at its own path.
func get(t *testing.T, method, query string) (answer *http.Response, body string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/percore", Handler())
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, httptest.NewRequest(method, "/debug/percore"+query, nil))
	b, err := io.ReadAll(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Result(), string(b)
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		method, query, contentType, part string
		status                           int
	}{
		{"GET", "", "text/html; charset=utf-8", "<h2>Loops</h2>", 200},
		{"HEAD", "", "text/html; charset=utf-8", "", 200},
		{"GET", "?format=parts", "text/html; charset=utf-8", "<main id=\"parts\"", 200},
		{"GET", "?format=json", "application/json", `"Accept": {`, 200},
		{"GET", "?format=xml", "text/plain; charset=utf-8", "json", 400},
		{"GET", "?file=page.js", "text/javascript; charset=utf-8", "use strict", 200},
		{"GET", "?file=page.css", "text/css; charset=utf-8", "prefers-color-scheme", 200},
		{"GET", "?file=page.html", "text/plain; charset=utf-8", "no such file", 404},
		{"GET", "?file=../handler.go", "text/plain; charset=utf-8", "no such file", 404},
		{"POST", "", "text/plain; charset=utf-8", "GET", 405},
	} {
		answer, body := get(t, c.method, c.query)
		if answer.StatusCode != c.status || answer.Header.Get("Content-Type") != c.contentType || !strings.Contains(body, c.part) {
			t.Errorf("%s %s: got %d, %s, want %d, %s with %q:\n%s", c.method, c.query,
				answer.StatusCode, answer.Header.Get("Content-Type"), c.status, c.contentType, c.part, body)
		}
		if c.status == 200 && (answer.Header.Get("Content-Security-Policy") != policy || answer.Header.Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("%s %s: got the header %v, want the policy", c.method, c.query, answer.Header)
		}
	}
	// Pages of other origins can't make a browser read the page: see TestRefuseCrossOrigin.
	r := httptest.NewRequest("GET", "/debug/percore?format=json", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	rec := httptest.NewRecorder()
	if Handler().ServeHTTP(rec, r); rec.Code != http.StatusForbidden {
		t.Errorf("Sec-Fetch-Site: cross-site: got %d, want 403", rec.Code)
	}
}

// TestPolicy: the page works under its own policy.
func TestPolicy(t *testing.T) {
	_, body := get(t, "GET", "")
	body = strings.ReplaceAll(body, `<a href="`+manual+"#", "") // links load nothing
	for _, banned := range []string{"style=", "<style", "onclick", "javascript:", "http://", "https://", "src=\"/", "<script>"} {
		if strings.Contains(body, banned) {
			t.Errorf("the page has %q, which the policy refuses", banned)
		}
	}
}

// TestEscaped: names that others choose are not interpreted as markup.
func TestEscaped(t *testing.T) {
	const evil = `<script>alert("1")</script>'&`
	s := percore.Stats{
		Listeners: []percore.ListenerStats{{Network: "unix", Address: evil, Group: evil}},
		Loops:     loop.ProcessStats{Groups: []loop.Stats{{Group: evil, Loops: 2, PerLoop: []loop.LoopStats{{}}}}},
		Adapters: []percore.AdapterStats{{Adapter: evil, Metrics: []percore.Metric{
			{Name: evil, Help: evil}, {Name: "x", Help: evil, Label: evil, Of: evil},
		}}},
	}
	if got := render(t, s); strings.Contains(got, "<script>") {
		t.Errorf("got a page with a script of another's: %s", got)
	}
}

// TestEveryField: each number in percore.Stats is on the page, except sums that follow from their parts.
func TestEveryField(t *testing.T) {
	s := percore.Stats{
		Listeners: []percore.ListenerStats{{Network: "tcp", Address: "a"}},
		Loops:     loop.ProcessStats{Groups: []loop.Stats{{Group: "g", Loops: 1, PerLoop: []loop.LoopStats{{}}}}},
		Adapters:  percore.ReadStats().Adapters,
	}
	tables := func() string {
		_, tables, _ := strings.Cut(render(t, s), "<h2>Listeners</h2>") // skip the verdict and the charts' values
		return tables
	}
	before := tables()
	testnet.EachNumber(reflect.ValueOf(&s).Elem(), "", func(path string, v reflect.Value) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		if v.CanInt() {
			v.SetInt(7777777)
		} else if v.CanUint() {
			v.SetUint(7777777)
		} else {
			v.SetFloat(7777777)
		}
		if tables() == before && !strings.HasPrefix(path, ".Loops.Counts") {
			t.Errorf("%s is not on the page: add it to page.html", path)
		}
		v.Set(old)
	})
}

// render returns the page for s.
func render(t *testing.T, s percore.Stats) string {
	t.Helper()
	var out strings.Builder
	if err := page.ExecuteTemplate(&out, "page", newView(history{{At: time.Now(), Stats: s}})); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestLive: the page has the listener and its group, and the JSON is percore.Stats.
func TestLive(t *testing.T) {
	if len(percore.ReadStats().Listeners) > 0 {
		t.Fatal("a listener is open from an earlier test")
	}
	if _, body := get(t, "GET", ""); !strings.Contains(body, "No loop runs") || !strings.Contains(body, "No listener") {
		t.Errorf("without a listener: got %s, want that it says so", body)
	}
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	testnet.Connect(t, ln)
	answer, body := get(t, "GET", "?format=json")
	var got struct {
		Time       time.Time
		Goroutines int
		Stats      percore.Stats
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%d: %v in %s", answer.StatusCode, err, body)
	}
	if got.Time.IsZero() || got.Goroutines == 0 {
		t.Errorf("got %+v, want a time and goroutines", got)
	}
	_, body = get(t, "GET", "")
	if runtime.GOOS == "linux" && len(got.Stats.Listeners) > 0 {
		if got.Stats.Listeners[0].Accepted != 1 || !strings.Contains(body, ln.Addr().String()) || !strings.Contains(body, "<th>default</th>") {
			t.Errorf("got %+v and %s, want the listener and its group", got.Stats, body)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{count(0), "0"}, {count(999), "999"}, {count(uint64(1234567)), "1\u202f234\u202f567"}, {count(-1234), "-1\u202f234"},
		{count(1234.5), "1\u202f234.5"}, {count(float64(12e6)), "12\u202f000\u202f000"},
		{byteCount(0), "0 B"}, {byteCount(1536), "1.5 KiB"}, {byteCount(uint64(5 << 40)), "5 TiB"},
		{seconds(0), "0s"}, {seconds(1234567), "1.23ms"}, {seconds(90 * time.Second), "1m30s"}, {seconds(123456 * time.Nanosecond), "123µs"},
		{ratio(1, 0), "–"}, {ratio(3, 2), "1.50"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestBad: what is wrong is marked, and only that.
func TestBad(t *testing.T) {
	parts := func(s percore.Stats) int { return strings.Count(render(t, s), "class=\"bad\"") }
	// A listener that is full of idle connections makes room for clients.
	before := parts(percore.Stats{Listeners: []percore.ListenerStats{{Conns: 5}, {Conns: 6, MaxConns: 6}}})
	for name, s := range map[string]percore.Stats{
		"a full listener":  {Listeners: []percore.ListenerStats{{Conns: 6, MaxConns: 6, Full: true}, {}}},
		"a lack of files":  {Listeners: []percore.ListenerStats{{AcceptStats: percore.AcceptStats{Backoffs: 1}}}},
		"a leaked buffer":  {Pool: pool.Stats{Leaked: 1}},
		"unsafe TLS":       {Adapters: []percore.AdapterStats{{Adapter: "http", Metrics: []percore.Metric{{Name: "tls_unsafe", Value: 1}}}}},
		"a failed restart": {Adapters: []percore.AdapterStats{{Adapter: "handover", Metrics: []percore.Metric{{Name: "given_total", Label: "result", Of: "failed", Value: 1}, {Name: "given_total", Label: "result", Of: "moved", Value: 1}}}}},
		"kept WebSockets":  {Adapters: []percore.AdapterStats{{Adapter: "websocket", Metrics: []percore.Metric{{Name: "sessions", Label: "state", Of: "kept", Value: 1}}}}},
	} {
		if got := parts(s); got != before+1 {
			t.Errorf("%s: got %d places marked, want %d", name, got, before+1)
		}
	}
}

// TestBadMetrics: the metrics that the page looks at exist.
func TestBadMetrics(t *testing.T) {
	exist := make(map[string]bool)
	for _, a := range percore.ReadStats().Adapters {
		for _, f := range a.Metrics {
			exist[a.Adapter+" "+f.Name] = true
			exist[a.Adapter+" "+f.Name+" "+f.Of] = true
		}
	}
	for _, name := range namedMetrics(t) {
		if !exist[name] {
			t.Errorf("no adapter has a metric %q", name)
		}
	}
}

// TestProcess: the page says which process it is about.
func TestProcess(t *testing.T) {
	_, body := get(t, "GET", "")
	for _, want := range []string{fmt.Sprint("process ", os.Getpid()), "up for", "GOMAXPROCS"} {
		if !strings.Contains(body, want) {
			t.Errorf("got a page without %q", want)
		}
	}
	if open, limit := descriptors(); runtime.GOOS == "linux" && (open < 3 || limit < open) {
		t.Errorf("got %d descriptors of %d", open, limit)
	}
}
