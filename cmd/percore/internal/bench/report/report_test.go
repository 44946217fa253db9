package report

import (
	"bytes"
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/percore/percore/cmd/percore/internal/bench"
)

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := Table(&b, example(), false); err != nil {
		t.Fatal(err)
	}
	want := `command      percore bench -run '<&>'
date         Mon, 04 May 2026 03:02:01 UTC
processor    A <fast> processor, 2 processors
memory       8.00GiB
kernel       Linux 6.18 x86_64
Go           go1.26 linux/amd64
percore      v1.2.3
arm percore  engine percore, GOMAXPROCS 2
arm net      engine net, GOMAXPROCS 2, A=b
load         builtin; windows of 2s after 500ms of warm-up, 5 per scenario and arm
took         1m15s

http/keepalive/conns=64
                        percore           net        percore / net
  cpu/op             8.00µs ±6%   10.0µs ±0%    0.800 [0.800 0.900]  better
  ops/s             125000 ±6%  100000 ±0%    1.250 [1.111 1.250]  better
  p50                 450µs ±39%    500µs ±0%    0.900 [0.700 1.400]  ≈
  p99                 900µs ±39%   1.00ms ±0%    0.900 [0.700 1.400]  ≈
cpu/1ms/load=0.6  (550 ops/s)
                        percore           net        percore / net
  cpu/op             24.0µs ±8%   20.0µs ±0%    1.200 [1.100 1.300]  worse
  ops/s              41667 ±8%   50000 ±0%    0.833 [0.769 0.909]  worse
  p50                 50.0µs ±0%   50.0µs ±0%    1.000 [1.000 1.000]  ≈
  p99                  100µs ±0%    100µs ±0%    1.000 [1.000 1.000]  ≈
idle/http/conns=10000
                        percore           net        percore / net
  resident/conn        710B ±1%  19.6KiB ±0%    0.035 [0.035 0.036]  better
  heap/conn            355B ±1%  9.81KiB ±0%    0.035 [0.035 0.036]  better
  goroutines/conn      1.00 ±0%     1.00 ±0%    1.000 [1.000 1.000]  ≈
echo/128B/conns=1
  FAILED: the net server died
    panic: oh
    	at home
idle/https/conns=10000
  not run: too many open files
percore against net: 4 better, 2 worse, 5 ≈ (the spread leaves it open)
  worse in cpu/1ms/load=0.6 cpu/op
  worse in cpu/1ms/load=0.6 ops/s
`
	if got := b.String(); squeeze(got) != squeeze(want) {
		t.Errorf("got\n%s\nwant, but for spaces,\n%s", got, want)
	}
}

// squeeze makes a single space of several.
func squeeze(s string) string { return regexp.MustCompile(` +`).ReplaceAllString(s, " ") }

// TestTableWide: with more than two arms the comparisons have lines of their own, of 110 columns at
// most.
func TestTableWide(t *testing.T) {
	rep := example()
	for _, name := range []string{"percore+fastpath", "percore", "gnet", "nbio"} {
		rep.Arms = append(rep.Arms, bench.Arm{Name: name + "#2"})
		for _, res := range rep.Results {
			if res.Measured() {
				res.Samples[name+"#2"] = res.Samples["net"]
			}
		}
	}
	var b bytes.Buffer
	if err := Table(&b, rep, false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 110 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	const want = " percore / net / percore+fastpath#2 / percore#2\n cpu/op 0.800 [0.800 0.900] better 0.800"
	if got := squeeze(b.String()); !strings.Contains(got, want) || strings.Count(got, " percore / gnet#2 / nbio#2\n") != 3 {
		t.Errorf("got\n%s\nwant %q in it, and two more comparisons", &b, want)
	}
}

// TestTableAll: the table of all metrics, with warnings.
func TestTableAll(t *testing.T) {
	rep := example()
	rep.Stopped = "interrupt"
	for i := range rep.Results[0].Samples["net"] {
		rep.Results[0].Samples["net"][i].Metrics[bench.MetricOther] = 40
	}
	rep.Results[0].Samples["net"][0].Metrics[bench.MetricAllocs] = 17
	var b bytes.Buffer
	if err := Table(&b, rep, true); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{"allocs/op", "other cpu", "up to 40% of the machine", "stopped before the end: interrupt"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in the summary:\n%s", want, got)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		v    float64
		u    bench.Unit
		want string
	}{
		{0, bench.Nanoseconds, "0.00ns"},
		{999, bench.Nanoseconds, "999ns"},
		{12_345, bench.Nanoseconds, "12.3µs"},
		{1_234_567, bench.Nanoseconds, "1.23ms"},
		{90e9, bench.Nanoseconds, "90.0s"},
		{9000e9, bench.Nanoseconds, "9000s"},
		{1023, bench.Bytes, "1023B"},
		{-2048, bench.Bytes, "-2.00KiB"},
		{105342.4, bench.PerSecond, "105342"},
		{29.83, bench.PerSecond, "29.8"},
		{0.083, bench.Count, "0.08"},
		{3.14, bench.Percent, "3.1%"},
		{math.NaN(), bench.Bytes, "-"},
	} {
		if got := format(c.v, c.u); got != c.want {
			t.Errorf("format(%v, %v) = %q, want %q", c.v, c.u, got, c.want)
		}
	}
}
