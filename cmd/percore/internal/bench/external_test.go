package bench

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/load"
)

const wrkOutput = `Running 1s test @ http://127.0.0.1:8765/
  2 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.20ms    1.06ms  16.53ms   93.95%
    Req/Sec     0.93k    37.24     0.97k    85.00%
  Latency Distribution
     50%  903.00us
     75%    2.42ms
     90%    2.84ms
     99%    1.20s
  1842 requests in 1.50s, 9.24MB read
Requests/sec:   1840.53
Transfer/sec:      9.23MB
`

const h2loadOutput = `finished in 1.00s, 1774.00 req/s, 279.79KB/s
requests: 1774 total, 1778 started, 1774 done, 1774 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 1774 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 279.79KB (286500) total, 263.48KB (269800) headers (space savings 0.00%), 8.57MB (8990632) data
`

func TestParseWrk(t *testing.T) {
	o, err := parseWrk(wrkOutput)
	if err != nil {
		t.Fatal(err)
	}
	if o.ops != 1842 || o.elapsed != 1500*time.Millisecond {
		t.Errorf("%d operations in %v, want 1842 in 1.5s", o.ops, o.elapsed)
	}
	for metric, want := range map[string]time.Duration{
		MetricP50: 903 * time.Microsecond, MetricP90: 2840 * time.Microsecond, MetricP99: 1200 * time.Millisecond,
	} {
		if got := o.metrics[metric]; math.Abs(got-float64(want)) > 1 {
			t.Errorf("%s = %v, want %v", metric, got, float64(want))
		}
	}
}

func TestParseH2load(t *testing.T) {
	o, err := parseH2load(h2loadOutput)
	if err != nil {
		t.Fatal(err)
	}
	if o.ops != 1774 || o.elapsed != time.Second {
		t.Errorf("%d operations in %v, want 1774 in 1s", o.ops, o.elapsed)
	}
}

func TestParseClientErrors(t *testing.T) {
	for _, c := range []struct {
		parse func(string) (observed, error)
		out   string
		want  string
	}{
		{parseWrk, wrkOutput + "  Non-2xx or 3xx responses: 2018\n", "Non-2xx or 3xx responses: 2018"},
		{parseWrk, "  Socket errors: connect 0, read 12, write 0, timeout 0\n" + wrkOutput, "read 12"},
		{parseWrk, "usage: wrk\n", "usage: wrk"},
		{parseWrk, "", "can't read"},
		{parseH2load, strings.Replace(h2loadOutput, "0 errored", "3 errored", 1), "3 errored"},
		{parseH2load, strings.Replace(h2loadOutput, "0 5xx", "9 5xx", 1), "9 5xx"},
		{parseH2load, "unknown option\n", "unknown option"},
	} {
		if _, err := c.parse(c.out); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

// TestClientArgs: external clients send a browser's header where the scenario does.
func TestClientArgs(t *testing.T) {
	for _, client := range []string{ClientWrk, ClientH2load} {
		for _, browser := range []bool{false, true} {
			g := newExternal(client, nil, load.Job{Kind: load.KindHTTP, Addr: "h:1", Conns: 8, Browser: browser})
			args := g.args(load.Phase{Duration: time.Second, Grace: time.Second})
			if got, want := args[len(args)-1], "http://h:1/"; got != want {
				t.Errorf("%s, browser=%t: got %q as last argument, want %q", client, browser, got, want)
			}
			var header []string
			for i, arg := range args[:len(args)-1] {
				if arg == "-H" {
					header = append(header, args[i+1])
				}
			}
			if browser != slices.Equal(header, load.BrowserHeader) {
				t.Errorf("%s, browser=%t: got the fields %q", client, browser, header)
			}
		}
	}
}

// TestClientArgsHTTP2: h2load gets what the scenario has over HTTP/1.1.
func TestClientArgsHTTP2(t *testing.T) {
	g := newExternal(ClientH2load, nil, load.Job{
		Kind: load.KindHTTP2, Addr: "h:1", Conns: 8, Streams: 5, Window: 1<<16 - 1, TLS: true, Browser: true,
	})
	args := strings.Join(g.args(load.Phase{Duration: time.Second}), " ")
	for _, want := range []string{"-c 8 ", "-m 5 ", "-w 16 -W 16 ", "-H " + load.BrowserHeader2()[0] + " ", " https://h:1/"} {
		if !strings.Contains(args, want) {
			t.Errorf("the arguments %s are without %s", args, want)
		}
	}
	if strings.Contains(args, "--h1") {
		t.Errorf("the arguments %s are for HTTP/1.1", args)
	}
}

// TestClients measures with the clients that are installed.
func TestClients(t *testing.T) {
	for _, client := range []string{ClientWrk, ClientH2load} {
		t.Run(client, func(t *testing.T) {
			if err := CheckClient(client); err != nil {
				t.Skip(err)
			}
			cfg := quick(t, "net", "^http/keepalive/conns=8$")
			cfg.Client, cfg.Warmup = client, 0
			rep, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if first(t, rep, MetricCPU) <= 0 || first(t, rep, MetricRate) <= 0 {
				t.Errorf("result %+v, want figures", rep.Results[0])
			}
			cfg.Match = regexp.MustCompile("^(h2c/keepalive/conns=16|h2c/upload/1KiB/conns=16|idle/h2c/)")
			rep, err = Run(t.Context(), cfg)
			if client == ClientWrk {
				if err == nil {
					t.Errorf("wrk has spoken HTTP/2: %+v", rep.Results)
				}
				return
			}
			if err != nil || !rep.Results[0].Measured() || rep.Results[1].Measured() || rep.Results[2].Measured() {
				t.Errorf("over HTTP/2: %+v, %v; want figures of small requests only", rep.Results, err)
			}
			noChildren(t)
		})
	}
	if err := CheckClient("ab"); err == nil || !strings.Contains(err.Error(), "unknown client") {
		t.Errorf("error %v, want one that names the clients", err)
	}
}

// TestClientNobody points an external client at a server that isn't there.
func TestClientNobody(t *testing.T) {
	if err := CheckClient(ClientWrk); err != nil {
		t.Skip(err)
	}
	cfg := fakeConfig(t, fakeNobody)
	cfg.Client = ClientWrk
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "wrk: ") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v, want wrk's", err)
	}
}
