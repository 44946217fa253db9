package prometheus

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	_ "github.com/percore/percore/adapters/reactor"          // the same
	_ "github.com/percore/percore/adapters/wsadapter/moving" // the same
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestConventions runs Prometheus' own linter on names, units and help texts.
func TestConventions(t *testing.T) {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	testnet.Connect(t, ln)
	problems, err := testutil.CollectAndLint(NewCollector())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	names := make(map[string]bool)
	for _, s := range samplesOf(percore.ReadStats()) {
		names[s.name] = true
	}
	for name := range names {
		if names[name+"_total"] {
			t.Errorf("%s and %[1]s_total are there: OpenMetrics has one name for both", name)
		}
	}
}

// TestRegistry: a registry that checks descriptions accepts the collector, with all kinds of
// listeners, two of them on the same address.
func TestRegistry(t *testing.T) {
	reg := prom.NewPedanticRegistry()
	reg.MustRegister(NewCollector())
	if err := reg.Register(NewCollector()); err == nil {
		t.Error("a registry took a second collector, want it refused")
	}
	listen := func(network, address string) net.Listener {
		ln, err := (&percore.ListenConfig{ReusePort: true}).Listen(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln
	}
	first := listen("tcp", "127.0.0.1:0")
	if runtime.GOOS == "linux" && len(percore.ReadStats().Listeners) > 0 { // or ReusePort has no effect
		listen("tcp", first.Addr().String())
		listen("unix", filepath.Join(testnet.ShortTempDir(t), "not\xffutf8"))
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	gathered := make(map[string]bool)
	for _, f := range families {
		gathered[f.GetName()] = true
	}
	counted := len(percore.ReadStats().Listeners) > 0
	for _, m := range everyKind() {
		ofPart := strings.HasPrefix(m.name, "percore_listener_") || strings.HasPrefix(m.name, "percore_loop_") || strings.HasPrefix(m.name, "percore_group_")
		if !gathered[m.name] && (counted || !ofPart) {
			t.Errorf("got no %s, want each metric", m.name)
		}
	}
}

// sums are the fields that are not exported because they are sums of other exported fields.
var sums = []string{".Loops.Counts", ".Loops.Groups.Counts"}

// TestEveryField: each number in Stats has its own metric.
func TestEveryField(t *testing.T) {
	s := percore.Stats{
		Listeners: []percore.ListenerStats{{Network: "tcp", Address: "a"}},
		Loops:     loop.ProcessStats{Groups: []loop.Stats{{Group: "g", PerLoop: []loop.LoopStats{{Loop: 3}}}}},
		Adapters:  []percore.AdapterStats{{Adapter: "x", Metrics: []percore.Metric{{Name: "y", Help: "Help"}}}},
	}
	before := lines(s)
	testnet.EachNumber(reflect.ValueOf(&s).Elem(), "", func(path string, v reflect.Value) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		if v.CanInt() {
			v.SetInt(7e9) // as a time, 7 s
		} else if v.CanUint() {
			v.SetUint(7e9)
		} else {
			v.SetFloat(7e9)
		}
		changed := 0
		for line := range lines(s) {
			if !before[line] {
				changed++
			}
		}
		isSum := slices.ContainsFunc(sums, func(p string) bool { return strings.HasPrefix(path, p) })
		if changed == 0 && !isSum || changed > 0 && isSum {
			t.Errorf("%s: %d metrics changed with it; add a metric for it to collector.go, and a row to docs/METRICS.md", path, changed)
		}
		v.Set(old)
	})
	s.Listeners[0].Full = true
	for line := range before {
		if !lines(s)[line] && !strings.HasPrefix(line, "percore_listener_full") {
			t.Errorf("Full changes %s", line)
		}
	}
	if !lines(s)["percore_listener_full[tcp a] 1"] {
		t.Error("no metric changed with Full")
	}
}

// lines returns the metrics of s, one per line.
func lines(s percore.Stats) map[string]bool {
	all := make(map[string]bool)
	for _, m := range samplesOf(s) {
		all[fmt.Sprint(m.name, m.values, m.value)] = true
	}
	return all
}

// TestFull: a listener whose connections are all idle is not full, since it makes room; one whose
// connections are all busy is, once a client waits.
func TestFull(t *testing.T) {
	const limit = 3
	ln, err := (&percore.ListenConfig{MaxConns: limit}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if len(percore.ReadStats().Listeners) == 0 {
		ln.Close()
		t.Skip("package net's listeners make no room")
	}
	busy := make(chan struct{})
	srv := httpadapter.Wrap(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusOK)
			http.NewResponseController(w).Flush()
			<-busy
		}
	})})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	defer func() {
		srv.Close()
		testnet.Receive(t, "Serve", served)
	}()
	full := func() float64 {
		i := slices.IndexFunc(samplesOf(percore.ReadStats()), func(s sample) bool { return s.name == "percore_listener_full" })
		return samplesOf(percore.ReadStats())[i].value
	}
	// get makes a request on a connection of its own, which stays open.
	get := func(path string) {
		c := testnet.Dial(t, ln)
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %v, %v", path, resp, err)
		}
	}
	for range limit {
		get("/idle")
	}
	if n := full(); n != 0 {
		t.Errorf("with idle connections: got %v, want 0", n)
	}
	for range limit {
		get("/busy") // in the place of an idle one
	}
	testnet.Dial(t, ln)
	testnet.Eventually(t, "a full listener", func() bool { return full() == 1 })
	close(busy)
	testnet.Eventually(t, "a listener with a free place", func() bool { return full() == 0 })
}

// TestHandler: the page has the metrics of percore and of the runtime.
func TestHandler(t *testing.T) {
	rec := httptest.NewRecorder()
	Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, _ := io.ReadAll(rec.Body)
	for _, want := range []string{"\npercore_open_connections ", "\npercore_http_connections{state=\"parked\"} ", "\ngo_goroutines "} {
		if !strings.Contains(string(body), want) {
			t.Errorf("got %d, %d bytes without %q", rec.Code, len(body), want)
		}
	}
}
