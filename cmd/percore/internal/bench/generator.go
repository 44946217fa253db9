package bench

import (
	"context"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/latency"
	"github.com/percore/percore/cmd/percore/internal/bench/load"
)

// observed is what a generator observed in a phase.
type observed struct {
	ops     int64
	elapsed time.Duration
	cpu     time.Duration      // of the generator
	metrics map[string]float64 // latencies
	latency string             // see Sample.Latency
}

// generator makes the load of one sample: package load in a separate process. One goroutine uses it.
type generator struct{ *child }

// startLoad starts a load process and connects it as job says.
func (r *runner) startLoad(ctx context.Context, on processors, job load.Job) (*generator, error) {
	c, err := startChild("the load generator", on, false, r.exe, r.cfg.LoadArgs, nil)
	if err != nil {
		return nil, err
	}
	if err := c.call(ctx, load.OpPrepare, job, nil, openMax); err != nil {
		c.stop()
		return nil, err
	}
	return &generator{c}, nil
}

// openIdle opens n connections as job says, uses each once and then leaves them alone.
func (g *generator) openIdle(ctx context.Context, job load.Job, n int) error {
	job.Conns, job.Callers = n, 0
	return g.call(ctx, load.OpIdle, job, nil, openMax)
}

// phase runs the load and blocks until every operation it began has ended.
func (g *generator) phase(ctx context.Context, ph load.Phase) (observed, error) {
	var res load.Result
	if err := g.call(ctx, load.OpRun, ph, &res, ph.Duration+2*ph.Grace); err != nil {
		return observed{}, err
	}
	h, err := latency.Decode(res.Latency)
	if err != nil {
		return observed{}, err
	}
	o := observed{
		ops: res.Ops, elapsed: res.Elapsed, cpu: res.CPU,
		metrics: map[string]float64{}, latency: res.Latency,
	}
	latencyMetrics(o.metrics, h)
	if ph.Within > 0 {
		o.metrics[MetricGood] = float64(res.Good) / ph.Duration.Seconds()
		o.metrics[MetricRefused] = 100 * float64(res.Refused) / float64(max(1, res.Ops+res.Refused))
	}
	for metric, encoded := range map[string]string{MetricServiceP99: res.Service, MetricLateP99: res.Late} {
		if encoded == "" {
			continue
		}
		h, err := latency.Decode(encoded)
		if err != nil {
			return observed{}, err
		}
		o.metrics[metric] = float64(h.Quantile(0.99))
	}
	return o, nil
}
