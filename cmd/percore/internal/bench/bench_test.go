package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/internal/testnet"
)

// quick returns a configuration that takes little time: windows long enough for
// a few requests, and a hung server given up soon.
func quick(t *testing.T, arms, run string) Config {
	t.Helper()
	parsed, err := ParseArms(arms)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Arms: parsed, Match: regexp.MustCompile(run), Rounds: 1,
		Duration: 100 * time.Millisecond, Warmup: 20 * time.Millisecond,
		Idle: 20, Settle: 10 * time.Millisecond, Hung: testnet.HangTimeout,
	}
}

// fakeConfig is quick with the fake server in place of the real one.
func fakeConfig(t *testing.T, how string) Config {
	cfg := quick(t, "net", "^http/keepalive/conns=8$")
	cfg.serverArgs = []string{argFake, how}
	return cfg
}

// noChildren fails the test if processes of the harness are left.
func noChildren(t *testing.T) {
	t.Helper()
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	for _, thread := range threads {
		if pids, err := os.ReadFile(thread); err == nil && len(pids) > 0 { // else the thread has ended
			t.Errorf("processes are left: %s", pids)
		}
	}
}

// only returns the only result of a report, which must not have failed.
func only(t *testing.T, rep *Report) *Result {
	t.Helper()
	if len(rep.Results) != 1 || rep.Results[0].Err != "" {
		t.Fatalf("results %+v, want one that has not failed", rep.Results)
	}
	return &rep.Results[0]
}

// first returns a metric of the first sample of the first arm.
func first(t *testing.T, rep *Report, metric string) float64 {
	t.Helper()
	v := only(t, rep).Values(rep.Arms[0].Name, metric)
	if len(v) == 0 {
		t.Fatalf("no %s was measured", metric)
	}
	return v[0]
}

// TestKnownFigures runs the whole harness against a server that makes its cost
// up: exactly that cost must come out, since nothing is in flight at either end
// of a window. Its latency is a sleep, which may take longer but never less.
func TestKnownFigures(t *testing.T) {
	began := time.Now()
	rep, err := Run(t.Context(), fakeConfig(t, fakeKnown))
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	for metric, want := range map[string]float64{
		MetricUser: float64(fakeCost), MetricSystem: float64(fakeCost / 3), MetricCPU: float64(fakeCost + fakeCost/3),
		MetricSwitch: 5, MetricAllocs: 7, MetricAlloc: 64,
	} {
		if got := first(t, rep, metric); math.Abs(got-want) > want/1e9 {
			t.Errorf("%s = %v, want %v", metric, got, want)
		}
	}
	// The machine may have other things to do for any part of that time.
	for _, metric := range []string{MetricP50, MetricP90} {
		if got := time.Duration(first(t, rep, metric)); got < fakeLatency || got > took {
			t.Errorf("%s = %v, want %v or little more", metric, got, fakeLatency)
		}
	}
	// Eight connections, each a request per latency at the most, and one at least.
	if got, most, least := first(t, rep, MetricRate), 8/fakeLatency.Seconds(), 8/took.Seconds(); got > most || got < least {
		t.Errorf("%s = %v, want %v or little less", MetricRate, got, most)
	}
	if arm := rep.Arms[0]; arm.GOMAXPROCS != 3 {
		t.Errorf("arm %+v, want GOMAXPROCS 3, as its server said", arm)
	}
	noChildren(t)
}

// TestKnownMemory does the same for idle connections, and a window after them.
func TestKnownMemory(t *testing.T) {
	cfg := fakeConfig(t, fakeKnown)
	cfg.Match = regexp.MustCompile("^idle/http/")
	cfg.Own = cfg.Scenarios()
	cfg.Own[0].Both = true
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string]float64{
		MetricResident: fakePerConn, MetricHeap: fakePerConn / 2, MetricStack: 100, MetricGoroutines: 1, MetricSwitch: 5,
	} {
		if got := first(t, rep, metric); got != want {
			t.Errorf("%s = %v, want %v", metric, got, want)
		}
	}
}

// TestRealCost measures handlers that burn a calibrated amount of CPU time
// by the operating system's accounting.
func TestRealCost(t *testing.T) {
	cfg := quick(t, "net", "^cpu/1ms/conns=64/saturated$")
	cfg.Duration = 300 * time.Millisecond
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// A part of the calibration's 1 ms is missing when the clock speeds up, or another thread leaves the
	// core; net/http's own cost and the opposite come on top. A wrong unit would be a factor of 1000.
	if got := time.Duration(first(t, rep, MetricCPU)); got < 200*time.Microsecond || got > 50*time.Millisecond {
		t.Errorf("%s = %v, want 1ms and some", MetricCPU, got)
	}
}

// TestFailures runs against servers that are broken, each in its own way.
func TestFailures(t *testing.T) {
	const hung = 300 * time.Millisecond
	for _, c := range []struct {
		how  string
		want []string
		hung time.Duration // how long to wait for the server
	}{
		{fakeRefuse, []string{"the net server: not today"}, 0},
		{fakeNobody, []string{"the load generator", "connect", "connection refused"}, 0},
		{fakeMute, []string{`the net server did not answer Start within 300ms`}, hung},
		{fakeBabble, []string{`the net server answered Start with something else`}, 0},
		{fakeDie, []string{"the net server died (exit status 3): " + fakeLastWord}, 0},
		{fakeWrong, []string{"the load generator", "unexpected answer 418"}, 0},
	} {
		t.Run(c.how, func(t *testing.T) {
			cfg := fakeConfig(t, c.how)
			cfg.Warmup = 0             // the harness speaks to the server before the load does
			cfg.Duration = time.Minute // the failure ends it
			if c.hung > 0 {
				cfg.Hung = c.hung
			}
			rep, err := Run(t.Context(), cfg)
			wantFailure(t, err, append(c.want, "http/keepalive/conns=8: ", "net, round 1: ")...)
			if c.how == fakeDie && (rep == nil || !strings.HasPrefix(rep.Results[0].Output, fakeLastWord)) {
				t.Errorf("report %+v, want it to have the server's last words", rep)
			}
			if rep == nil || len(rep.Results) != 1 || rep.Results[0].Err == "" || rep.Results[0].Measured() {
				t.Errorf("report %+v, want one failed result", rep)
			}
			noChildren(t)
		})
	}
}

// wantFailure checks that a run has failed, with one line that says all of want.
func wantFailure(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q, want one with %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has several lines: %q", err)
	}
}

// TestHang runs against a server that stops answering in the middle of the load. It
// is given up as soon as it would be if it didn't answer the harness, and a busy
// machine may not let it do that in time: then once more, with more time.
func TestHang(t *testing.T) {
	cfg := fakeConfig(t, fakeHang)
	cfg.Warmup, cfg.Duration = 0, time.Second // it is judged after the end
	var err error
	for cfg.Hung = 300 * time.Millisecond; cfg.Hung < testnet.HangTimeout; cfg.Hung *= 3 {
		if _, err = Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "did not answer") {
			break
		}
	}
	wantFailure(t, err, "http/keepalive/conns=8: ", "the load generator", "the server stopped answering", cfg.Hung.String()+" after the end")
	noChildren(t)
}

// TestHungUpIdle: a server that closes idle connections must not pass for a cheap one.
func TestHungUpIdle(t *testing.T) {
	cfg := fakeConfig(t, fakeHangUp)
	cfg.Match = regexp.MustCompile("^idle/http/")
	_, err := Run(t.Context(), cfg)
	wantFailure(t, err, "use idle connection")
	noChildren(t)
}

// TestFailureIsNotTheEnd lets one scenario fail, and looks for the one after it.
// With a single connection the fake is not asked often enough to die, with eight it
// is, since each is used at least once to warm up and once after.
func TestFailureIsNotTheEnd(t *testing.T) {
	cfg := fakeConfig(t, fakeDie)
	cfg.Match = regexp.MustCompile("^http/keepalive/conns=8$|^client/http/calls=1$")
	rep, err := Run(t.Context(), cfg)
	if err == nil || !strings.HasPrefix(err.Error(), "http/keepalive/conns=8: ") {
		t.Errorf("error %v, want that of the first scenario", err)
	}
	if len(rep.Results) != 2 || rep.Results[0].Err == "" || rep.Results[1].Err != "" || !rep.Results[1].Measured() {
		t.Errorf("results %+v, want a failure and a success", rep.Results)
	}
	cfg.Match = regexp.MustCompile("^http/(keepalive/conns=8|timeouts/conns=64)$")
	if _, err := Run(t.Context(), cfg); err == nil || !strings.HasPrefix(err.Error(), "2 scenarios failed, the first: http/keepalive/conns=8: ") {
		t.Errorf("error %v, want one that counts the failures", err)
	}
}

// TestEveryScenario runs each scenario once on percore, and expects of each the metrics it is about.
// The harness is the same for both engines, and each sample starts two or three processes: with
// PERCORE_TEST_FULL=1 it runs them on net, too.
func TestEveryScenario(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: run it without -short")
	}
	arms := "percore"
	if os.Getenv("PERCORE_TEST_FULL") != "" {
		arms = "percore,net"
	}
	cfg := quick(t, arms, "")
	var last Progress
	cfg.Progress = func(p Progress) {
		if p.Done != 0 && p.Done != last.Done+1 {
			t.Errorf("sample %d comes after %d", p.Done, last.Done)
		}
		last = p
	}
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if last.Done != last.Total-1 {
		t.Errorf("the last sample was number %d of %d", last.Done, last.Total)
	}
	if got, want := len(rep.Results), len(cfg.AllScenarios()); got != want {
		t.Errorf("%d results, want %d", got, want)
	}
	for i := range rep.Results {
		checkResult(t, rep, &rep.Results[i])
	}
	noChildren(t)
}

// TestScale: each step's server has as many processors as its name says.
func TestScale(t *testing.T) {
	cfg := quick(t, "percore,net", "^scale/echo/")
	cfg.Scale = true
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	steps := scenario.ScaleSteps(processorCount())
	if len(rep.Results) != len(steps) {
		t.Fatalf("%d results, want one for each of %v processors", len(rep.Results), steps)
	}
	for i := range rep.Results {
		res := &rep.Results[i]
		checkResult(t, rep, res)
		if res.Procs != steps[i] {
			t.Errorf("%s: %d processors, want %d", res.Scenario, res.Procs, steps[i])
		}
	}
	noChildren(t)
}

// TestArms: each arm is measured in the scenarios that it has a server for, of which these are some,
// and in no others.
func TestArms(t *testing.T) {
	const web = "^(http/(keepalive|browser|close|odd|json)/.*conns=64$|https/keepalive/conns=8$|http/(open|unpark|waiting)|" +
		"cpu/1ms/conns=64/load|(download|upload)/64KiB|proxy/http|computing/http/conns=16$|idle/http|idle.busy)"
	for _, c := range []struct{ arms, match, measured string }{
		{"percore+fastpath", web + "|^echo/128B/conns=1$", "^[^e]"},
		{"percore+fastpath,net", "^(h2c/(keepalive|upload/64KiB|download/100KiB/window=64KiB)/conns=16|idle/h2c|h2c/waiting)", ""},
		{"percore+reactor", "^(echo/(128B|16KiB)/conns=16|computing/echo|broadcast|resp|idle/echo|idle/https/)", "^(echo|comp|broad|resp|idle/echo)"},
		{"percore+fasthttp,fasthttp", "^(http/(keepalive|timeouts|browser)/conns=64|http/(open|close)|idle/http/|echo/128B/conns=1$)", "^(http|idle)"},
		{"nginx", "^(http/keepalive/conns=8|http/close/conns=64|proxy/client/(https/)?conns=64|idle/http/.*|echo/128B/conns=1)$", "http|proxy"},
		{"nghttpd", "^(h2c/keepalive/conns=64|h2/keepalive/conns=1/|h2c/download/100KiB/conns=16|idle/h2c/c|http/keepalive/conns=8$)", "h2"},
		{"percore+newserver,percore+fastpath,net", "^(grpc/waiting/|idle/grpc/)", ""},
		{"percore+fastpath+detach", "^(http|h2c|grpc)/(waiting/|keepalive/conns=1$)", "waiting"},
		{"percore+newserver+detach", "^(http|h2c|grpc)/waiting/", "grpc"},
	} {
		t.Run(c.arms, func(t *testing.T) {
			if testing.Short() && strings.HasPrefix(c.match, web) {
				t.Skip("takes minutes: run it without -short")
			}
			cfg := quick(t, c.arms, c.match)
			if cfg.Arms[0].Engine.Detach {
				cfg.Idle = 1000 // many times as many as there are workers
			}
			if err := FindPrograms(cfg.Arms); err != nil {
				t.Skip(err)
			}
			rep, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			measured := 0
			for i := range rep.Results {
				res := &rep.Results[i]
				want := regexp.MustCompile(c.measured).MatchString(res.Scenario)
				if res.Measured() != want || !want && !strings.Contains(res.Skipped, "no arm has a server for it") {
					t.Errorf("%s: measured %t, skipped for %q; want it measured: %t", res.Scenario, res.Measured(), res.Skipped, want)
				} else if want {
					measured++
					checkResult(t, rep, res)
					checkArms(t, rep, res)
				}
			}
			if measured == 0 || c.measured != "" && measured == len(rep.Results) {
				t.Errorf("%d of %d scenarios were measured", measured, len(rep.Results))
			}
			noChildren(t)
		})
	}
}

// checkArms looks for the traces of each arm's server: requests that the adapter counts, goroutines and
// memory of connections that wait.
func checkArms(t *testing.T, rep *Report, res *Result) {
	t.Helper()
	memory := res.Headline[0] == MetricResident
	for _, arm := range rep.Arms {
		e, value := arm.Engine, func(metric string) float64 {
			return append(res.Values(arm.Name, metric), 0)[0]
		}
		overHTTP1 := regexp.MustCompile(`^(http|https|cpu|download|upload|proxy|computing|idle\+busy)/`).MatchString(res.Scenario)
		if got, want := value(MetricFast) > 0, e.Kind == scenario.FastPath && overHTTP1; !memory && got != want {
			t.Errorf("%s on %s: the fast path served requests: got %t, want %t", res.Scenario, arm.Name, got, want)
		}
		if got, want := value(MetricGoroutines) >= 0.5, !e.Detach; strings.Contains(res.Scenario, "/waiting/") && got != want {
			t.Errorf("%s on %s: %v goroutines for each", res.Scenario, arm.Name, value(MetricGoroutines))
		}
	}
	own, theirs := res.Values("percore+fastpath", MetricHeap), res.Values("net", MetricHeap)
	if strings.HasPrefix(res.Scenario, "idle/h2c/") && len(theirs) > 0 && own[0] > theirs[0]*2/3 {
		t.Errorf("%s: %v bytes for each, on net %v; want less than two thirds", res.Scenario, own[0], theirs[0])
	}
}

// checkResult checks that a scenario was measured in full.
func checkResult(t *testing.T, rep *Report, res *Result) {
	t.Helper()
	for _, arm := range rep.Arms {
		for _, metric := range res.Headline {
			v := res.Values(arm.Name, metric)
			if len(v) != 1 || math.IsNaN(v[0]) || math.IsInf(v[0], 0) {
				t.Errorf("%s on %s: %s = %v, want one figure", res.Scenario, arm.Name, metric, v)
			}
		}
		memory := strings.HasPrefix(res.Scenario, "idle/") || strings.Contains(res.Scenario, "/waiting/")
		if got := res.Samples[arm.Name][0].Latency != ""; got == memory {
			t.Errorf("%s on %s: latencies there: %t", res.Scenario, arm.Name, got)
		}
	}
	open := strings.Contains(res.Scenario, "load=") || strings.Contains(res.Scenario, "/unpark/") || strings.Contains(res.Scenario, "/sparse/")
	if open != (res.Rate > 0) {
		t.Errorf("%s: rate %v", res.Scenario, res.Rate)
	}
}

// TestFilesAreRemoved looks for the files that are downloaded after a run.
func TestFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	cfg := quick(t, "net", "^download/4KiB")
	if _, err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// TestEnvironment passes each arm another value of a variable and sees its effect.
func TestEnvironment(t *testing.T) {
	cfg := quick(t, "net,net", "^echo/128B/conns=1$")
	want := []int{6, 7}
	for i := range want {
		if err := SetEnv(cfg.Arms, fmt.Sprintf("%s:GOMAXPROCS=%d", cfg.Arms[i].Name, want[i])); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got := rep.Arms[i].GOMAXPROCS; got != want[i] {
			t.Errorf("GOMAXPROCS of %s is %d, want %d", rep.Arms[i].Name, got, want[i])
		}
	}
}
