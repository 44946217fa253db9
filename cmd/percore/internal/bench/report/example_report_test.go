package report

import (
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// sample returns a sample of a server that takes cpu per operation.
func sample(cpu, p99 time.Duration) bench.Sample {
	return bench.Sample{Latency: "HISTF", Metrics: map[string]float64{
		bench.MetricCPU: float64(cpu), bench.MetricRate: 1e9 / float64(cpu),
		bench.MetricP50: float64(p99 / 2), bench.MetricP99: float64(p99), bench.MetricOther: 2,
	}}
}

// memorySample returns a sample of idle connections.
func memorySample(bytes float64) bench.Sample {
	return bench.Sample{Metrics: map[string]float64{
		bench.MetricResident: bytes, bench.MetricHeap: bytes / 2, bench.MetricGoroutines: 1,
	}}
}

// example returns a report with a win, a loss, a draw, a failure and a scenario that was not run.
func example() *bench.Report {
	load := []string{bench.MetricCPU, bench.MetricRate, bench.MetricP50, bench.MetricP99}
	many := func(cpu, p99 []time.Duration) []bench.Sample {
		var all []bench.Sample
		for i := range cpu {
			all = append(all, sample(cpu[i]*time.Microsecond, p99[i]*time.Microsecond))
		}
		return all
	}
	return &bench.Report{
		Host:    bench.Host{OS: "linux", Arch: "amd64", Kernel: "Linux 6.18 x86_64", CPU: "A <fast> processor", CPUs: 2, Memory: 8 << 30, Go: "go1.26", Version: "v1.2.3"},
		Command: "percore bench -run '<&>'", Started: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Took: 75,
		Rounds: 5, Window: 2, Warmup: 0.5,
		Arms: []bench.Arm{
			{Name: "percore", Engine: scenario.Engine{Percore: true}, GOMAXPROCS: 2},
			{Name: "net", GOMAXPROCS: 2, Env: []string{"A=b"}},
		},
		Results: []bench.Result{
			{Scenario: "http/keepalive/conns=64", Headline: load, Samples: map[string][]bench.Sample{
				"percore": many([]time.Duration{8, 9, 8, 8, 9}, []time.Duration{900, 700, 1400, 900, 900}),
				"net":     many([]time.Duration{10, 10, 10, 10, 10}, []time.Duration{1000, 1000, 1000, 1000, 1000}),
			}},
			{Scenario: "cpu/1ms/load=0.6", Headline: load, Rate: 550, Samples: map[string][]bench.Sample{
				"percore": many([]time.Duration{22, 23, 24, 25, 26}, []time.Duration{100, 100, 100, 100, 100}),
				"net":     many([]time.Duration{20, 20, 20, 20, 20}, []time.Duration{100, 100, 100, 100, 100}),
			}},
			{Scenario: "idle/http/conns=10000", Headline: []string{bench.MetricResident, bench.MetricHeap, bench.MetricGoroutines}, Samples: map[string][]bench.Sample{
				"percore": {memorySample(700), memorySample(710), memorySample(720)},
				"net":     {memorySample(20_000), memorySample(20_100), memorySample(20_200)},
			}},
			{Scenario: "echo/128B/conns=1", Headline: load, Samples: map[string][]bench.Sample{}, Err: "the net server died", Output: "panic: oh\n\tat home"},
			{Scenario: "idle/https/conns=10000", Headline: load, Skipped: "too many open files"},
		},
	}
}
