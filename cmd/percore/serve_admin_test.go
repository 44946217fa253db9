package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	_ "github.com/percore/percore/adapters/reactor"   // for its metrics
	_ "github.com/percore/percore/adapters/wsadapter" // the same
	"github.com/percore/percore/internal/testnet"
	_ "github.com/percore/percore/metrics/tcpinfo" // the same
	"github.com/percore/percore/tlsfiles"
)

// startDemo runs the servers in this process until the test ends.
func startDemo(t *testing.T) *demo {
	t.Helper()
	testnet.NoLeaks(t)
	const free = "127.0.0.1:0"
	opts := serveOptions{httpAddress: free, grpcAddress: free, adminAddress: free, dir: t.TempDir(), drain: testnet.HangTimeout}
	d, err := newDemo(opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("newDemo: %v", err)
	}
	serves, ended := make(chan struct{}), make(chan struct{})
	d.ready = func() { close(serves) }
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		err = d.run(ctx)
		d.release()
	}()
	t.Cleanup(func() {
		cancel()
		testnet.Within(t, "stopping", func() { <-ended })
		if err != nil {
			t.Errorf("the demo: %v", err)
		}
	})
	select {
	case <-serves:
	case <-ended:
		t.Fatalf("the demo: %v", err)
	}
	return d
}

// fetchOnce asks for a URL on a connection of its own.
func fetchOnce(t *testing.T, config *tls.Config, url string) (resp *http.Response, body string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return resp, string(b)
}

func TestServeAdmin(t *testing.T) {
	d := startDemo(t)
	base := baseURL(d.admin.Addr())
	for path, want := range map[string]string{
		"/metrics":                    "\npercore_open_connections ",
		"/debug/percore":              "<h2>Loops</h2>",
		"/debug/percore?":             "gRPC: being served", // a chart of a figure of another module
		"/debug/percore?format=json":  `"Listeners"`,
		"/debug/pprof/":               "goroutine",
		"/debug/pprof/cmdline":        "",
		"/debug/pprof/heap?debug=1":   "heap profile",
		"/debug/pprof/symbol":         "num_symbols",
		"/debug/pprof/trace?seconds=": "",
	} {
		if resp, body := fetchOnce(t, nil, base+path); resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %s, %d bytes, want 200 and %q", path, resp.Status, len(body), want)
		}
	}
	if resp, _ := fetchOnce(t, nil, base+"/other"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("/other: got %s, want 404", resp.Status)
	}
	if resp, _ := fetchOnce(t, nil, baseURL(d.httpListener.Addr())+"/metrics"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the public address: got %s, want 404 for the pages of the admin server", resp.Status)
	}
}

// TestServeOwnCertificate: -cert and -key take the place of the self-signed one.
func TestServeOwnCertificate(t *testing.T) {
	d := &demo{opts: serveOptions{tls: true, files: tlsfiles.Paths{Cert: filepath.Join(t.TempDir(), "cert.pem"), Key: "key.pem"}}}
	if err := d.openTLS(); err == nil || !strings.Contains(err.Error(), d.opts.files.Cert) {
		t.Errorf("a file that is missing: got %v, want an error that names it", err)
	}
}

// TestMetricNames: the documents name no metric that doesn't exist, and docs/METRICS.md says of each
// what to do. (Each has its own help text; metrics/alerts checks the rules of the alerts themselves.)
func TestMetricNames(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("metrics of loops and listeners are Linux's")
	}
	needEngine(t)
	d := startDemo(t)
	fetchOnce(t, nil, baseURL(d.httpListener.Addr())+"/echo")
	_, metrics := fetchOnce(t, nil, baseURL(d.admin.Addr())+"/metrics")
	for file, least := range map[string]int{"METRICS.md": 100, "alerts.yml": 10, "grafana.json": 20} {
		data, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if filepath.Ext(file) == ".json" && !json.Valid(data) {
			t.Errorf("docs/%s isn't JSON", file)
		}
		names := regexp.MustCompile(`\bpercore_\w+`).FindAllString(text, -1)
		if len(names) < least {
			t.Errorf("docs/%s has %d names of metrics, want %d or more", file, len(names), least)
		}
		for _, name := range names {
			if !strings.Contains(metrics, "\n# TYPE "+name+" ") {
				t.Errorf("docs/%s: there is no metric %s", file, name)
			}
		}
		if file != "METRICS.md" {
			continue
		}
		rows := firstCells(text)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (percore_\w+) `).FindAllStringSubmatch(metrics, -1) {
			if n := rows[m[1]]; n != 1 {
				t.Errorf("docs/METRICS.md has %d rows for %s, want one", n, m[1])
			}
		}
	}
}

// firstCells counts the names of metrics in the first cells of a document's tables.
func firstCells(text string) map[string]int {
	cells := make(map[string]int)
	for line := range strings.Lines(text) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, name := range regexp.MustCompile(`percore_\w+`).FindAllString(cell, -1) {
			if strings.HasPrefix(line, "|") {
				cells[name]++
			}
		}
	}
	return cells
}

// TestTables: each table has a head. A line between two rows would end it, and the rest would be shown
// as text.
func TestTables(t *testing.T) {
	for _, file := range []string{"OPERATIONS.md", "METRICS.md"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		for i := 1; i < len(lines)-1; i++ {
			begins := strings.HasPrefix(lines[i], "|") && !strings.HasPrefix(lines[i-1], "|")
			if begins && !strings.HasPrefix(lines[i+1], "|---") {
				t.Errorf("%s, line %d is a row without a table: %.60s", file, i+1, lines[i])
			}
		}
	}
}

// The pages are for addresses and localhost, not for a name that another's DNS leads here.
func TestServeAdminHost(t *testing.T) {
	d := startDemo(t)
	for _, path := range []string{"/debug/pprof/", "/metrics"} {
		for host, want := range map[string]int{"localhost:1": 200, "[::1]:80": 200, "evil.example:6060": 403} {
			req, err := http.NewRequest("GET", baseURL(d.admin.Addr())+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host, req.Close = host, true
			resp, err := new(http.Transport).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); resp.StatusCode != want {
				t.Errorf("%s, Host %q: got %s, want %d", path, host, resp.Status, want)
			}
		}
	}
	for _, test := range []struct {
		addr net.Addr
		want bool
	}{
		{&net.TCPAddr{IP: net.IPv6loopback}, true},
		{&net.TCPAddr{}, false},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, false},
		{&net.UnixAddr{Name: "/run/admin", Net: "unix"}, false}, // no browser gets there
	} {
		if got := isLocal(test.addr); got != test.want {
			t.Errorf("%v: got local %t, want %t", test.addr, got, test.want)
		}
	}
}
