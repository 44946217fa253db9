package debug

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
)

// namedMetrics returns the metrics of this module's adapters that verdict.go and charts.go name.
func namedMetrics(t *testing.T) (all []string) {
	t.Helper()
	for file, pattern := range map[string]string{
		"verdict.go": `"((?:http|http2|client|reactor|websocket|handover|tls|admission) [a-z0-9_]+(?: [a-z]+)?)"`,
		"charts.go":  `v\.of\("([^"]+)"`,
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1)
		if len(found) < 20 {
			t.Fatalf("%s: got only the metrics %q", file, found)
		}
		for _, m := range found {
			if !strings.HasPrefix(m[1], "grpc") { // of another module
				all = append(all, m[1])
			}
		}
	}
	return all
}

// TestAnchors: docs/OPERATIONS.md has a paragraph for each check, and a check for each paragraph.
func TestAnchors(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "docs", "OPERATIONS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## What can be wrong\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var has []string
	for _, m := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(section, -1) {
		has = append(has, m[1])
	}
	for _, c := range checks {
		if !slices.Contains(has, c.title) {
			t.Errorf("docs/OPERATIONS.md has no paragraph %q", c.title)
		}
	}
	for _, title := range has {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.title == title }) {
			t.Errorf("no check leads to the paragraph %q", title)
		}
		if a := anchor(title); regexp.MustCompile(`[^a-z0-9-]`).MatchString(a) {
			t.Errorf("%q: the anchor %q isn't what GitHub makes of it", title, a)
		}
	}
}

// readings makes a history of pairs of stats, with so many seconds in between.
func readings(gap time.Duration, stats ...percore.Stats) (h history) {
	for i, s := range stats {
		h = append(h, reading{At: time.Unix(1e9, 0).Add(time.Duration(i) * gap), Stats: s})
	}
	return h
}

// metricsOf makes stats of metrics of one adapter.
func metricsOf(adapter string, metrics ...percore.Metric) percore.Stats {
	return percore.Stats{Adapters: []percore.AdapterStats{{Adapter: adapter, Metrics: metrics}}}
}

// TestWrong: each thing is wrong when it is, and not before.
func TestWrong(t *testing.T) {
	slow := func(slow, serving float64) percore.Stats {
		return metricsOf("http", percore.Metric{Name: "slow_answers", Value: slow},
			percore.Metric{Name: "connections", Label: "state", Of: "serving", Value: serving})
	}
	calls := func(unanswered, requests float64) percore.Stats {
		return metricsOf("client", percore.Metric{Name: "unanswered_calls", Value: unanswered}, percore.Metric{Name: "requests_total", Value: requests})
	}
	loops := func(times ...time.Duration) percore.Stats {
		g := loop.Stats{Group: "g"}
		for i, d := range times {
			g.PerLoop = append(g.PerLoop, loop.LoopStats{Loop: i, Counts: loop.Counts{CallbackTime: d}})
		}
		return percore.Stats{Loops: loop.ProcessStats{Groups: []loop.Stats{g}}}
	}
	accept := func(a percore.AcceptStats) percore.Stats { return percore.Stats{Accept: a} }
	certificate := func(end int64) percore.Stats {
		return metricsOf("tls", percore.Metric{Name: "certificate_not_after_timestamp_seconds", Value: float64(end)})
	}
	const second, week = time.Second, 7 * 24 * 3600
	for _, test := range []struct {
		name string
		h    history
		want string // the title, or nothing
	}{
		{"nothing", readings(second, percore.Stats{}, percore.Stats{}), ""},
		{"a full listener", readings(second, percore.Stats{Listeners: []percore.ListenerStats{{Full: true}}}), "Full listeners"},
		{"one that was full a moment ago", readings(second, percore.Stats{Listeners: []percore.ListenerStats{{Full: true}}}, percore.Stats{}), ""},
		{"one that has just become full", readings(second, percore.Stats{}, percore.Stats{Listeners: []percore.ListenerStats{{Full: true}}}), ""},
		{"it makes room", readings(10*second, percore.Stats{}, accept(percore.AcceptStats{MadeRoom: 301})), "Full listeners"},
		{"it makes room now and then", readings(10*second, percore.Stats{}, accept(percore.AcceptStats{MadeRoom: 300})), ""},
		{"few descriptors", history{{Files: 91, FilesMax: 100}}, "Lack of descriptors"},
		{"enough descriptors", history{{Files: 80, FilesMax: 100}}, ""},
		{"an unknown limit", history{{Files: 80}}, ""},
		{"backoffs of an hour ago", readings(second, accept(percore.AcceptStats{Backoffs: 5}), accept(percore.AcceptStats{Backoffs: 5})), ""},
		{"backoffs, at the first look", readings(second, accept(percore.AcceptStats{Backoffs: 5})), ""},
		{"backoffs", readings(second, accept(percore.AcceptStats{Backoffs: 5}), accept(percore.AcceptStats{Backoffs: 6})), "Lack of descriptors"},
		{"refused", readings(second, percore.Stats{}, accept(percore.AcceptStats{Refused: 60, BadHeaders: 1})), "Refused connections"},
		{"a busy loop", readings(10*second, loops(0, 0), loops(second, 6*second)), "Busy loops"},
		{"two loops that aren't", readings(10*second, loops(0, 0), loops(4*second, 4*second)), ""},
		{"a loop that has just begun", readings(10*second, percore.Stats{}, loops(9*second)), ""},
		{"slow passes", readings(second, percore.Stats{}, percore.Stats{Loops: loop.ProcessStats{Counts: loop.Counts{SlowPasses: 7}}}), "Busy loops"},
		{"a few", readings(second, percore.Stats{}, percore.Stats{Loops: loop.ProcessStats{Counts: loop.Counts{SlowPasses: 6}}}), ""},
		{"a loop, too early to tell", readings(second, loops(0), loops(second)), ""},
		{"a hundred slow clients of many", readings(second, slow(100, 1000)), ""},
		{"more", readings(second, slow(101, 1000)), "Slow clients"},
		{"most", readings(second, slow(10, 19)), "Slow clients"},
		{"a few", readings(second, slow(9, 9)), ""},
		{"half", readings(second, slow(10, 20)), ""},
		{"slow upstreams", readings(10*second, calls(20, 0), calls(20, 190)), "Slow upstreams"},
		{"as fast as they are asked", readings(10*second, calls(20, 0), calls(20, 210)), ""},
		{"too early to tell", readings(second, calls(20, 0), calls(20, 0)), ""},
		{"a leaked buffer", readings(second, percore.Stats{}, percore.Stats{Pool: pool.Stats{Leaked: 1}}), "Leaked buffers"},
		{"a certificate's last week", readings(second, certificate(1e9+week-1)), "Certificates"},
		{"a week before that", readings(second, certificate(1e9+week)), ""},
		{"unsafe TLS", readings(second, metricsOf("http", percore.Metric{Name: "tls_unsafe", Value: 1})), "Connections that net/http serves"},
		{"a failed restart", readings(second, metricsOf("handover"), metricsOf("handover", percore.Metric{Name: "given_total", Of: "failed", Value: 1})), "Failed restarts"},
		{"a restart", readings(second, metricsOf("handover"), metricsOf("handover", percore.Metric{Name: "given_total", Of: "ok", Value: 1})), ""},
	} {
		var got []string
		for _, f := range wrong(test.h) {
			got = append(got, f.Title)
		}
		if want := strings.Fields(strings.ReplaceAll(test.want, " ", "_")); len(got) != len(want) || len(got) == 1 && got[0] != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// TestVerdict: the page begins with what is wrong, and what was.
func TestVerdict(t *testing.T) {
	begin := func(s percore.Stats) string {
		_, text, _ := strings.Cut(render(t, s), `id="verdict"`)
		text, _, _ = strings.Cut(text, "</section>")
		return text
	}
	if text := begin(percore.Stats{}); !strings.Contains(text, "All is well") || !strings.Contains(text, `class="well"`) || strings.Contains(text, "Since the start") {
		t.Errorf("got %s, want that all is well", text)
	}
	full := percore.ListenerStats{Full: true}
	text := begin(percore.Stats{Listeners: []percore.ListenerStats{full, full}, Accept: percore.AcceptStats{Backoffs: 7}})
	for _, want := range []string{"Something is wrong", `class="wrong"`, "<b>2</b> listeners", manual + "#full-listeners", "Since the start", "<b>7</b> times that Accept", "#lack-of-descriptors"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}

// TestLook: looks share the readings of the last minute, one a second.
func TestLook(t *testing.T) {
	forget()
	defer forget()
	if h := look(); len(h) != 1 {
		t.Fatalf("got %d readings at the first look, want 1", len(h))
	}
	if h := look(); len(h) != 2 {
		t.Errorf("got %d readings at the second look, want 2", len(h))
	}
	if n := len(recent.readings); n != 1 {
		t.Errorf("%d readings are kept of two looks at the same time, want 1", n)
	}
	recent.readings[0].At = recent.readings[0].At.Add(-30 * time.Second)
	if h := look(); len(h) != 2 || len(recent.readings) != 2 {
		t.Errorf("got %d readings half a minute later and %d kept, want 2", len(h), len(recent.readings))
	}
	recent.readings[0].At = recent.readings[0].At.Add(-31 * time.Second)
	if h := look(); len(h) != 2 {
		t.Errorf("got %d readings a minute later, want 2: the first is too old", len(h))
	}
}

// TestReport: the report says what the page says above its charts.
func TestReport(t *testing.T) {
	s := percore.Stats{Conns: 1234, Accept: percore.AcceptStats{Backoffs: 7}}
	var got []string
	for line := range strings.Lines(Report(s)) {
		got = append(got, strings.TrimSpace(line))
	}
	want := []string{"connections open\t1234", "connections waiting\t0", "requests being served\t0",
		"answers that wait for slow clients\t0", "requests since the start\t0", "times that Accept waited for descriptors or memory\t7"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
