package load

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/latency"
)

// run drives the sessions for one phase, each in its own goroutine. It returns when every operation
// that it began has ended.
func run(sessions []session, ph Phase) (Result, error) {
	setDeadlines(sessions, time.Now().Add(ph.Duration+ph.Grace))
	defer setDeadlines(sessions, time.Time{})
	var (
		m   measurement
		err error
	)
	cpu, began := processCPU(), time.Now()
	if ph.open() {
		m, err = openLoop(sessions, ph, sleep)
	} else {
		m, err = closedLoop(sessions, ph)
	}
	elapsed := time.Since(began)
	if err != nil {
		return Result{}, explain(err, ph)
	}
	res := Result{Ops: m.latency.Count(), Good: m.good, Refused: m.refused, Elapsed: elapsed, CPU: processCPU() - cpu}
	return res, m.encode(&res)
}

// setDeadlines sets the deadline of every session.
func setDeadlines(sessions []session, t time.Time) {
	for _, s := range sessions {
		s.setDeadline(t)
	}
}

// measurement is what a loop has recorded. Service and late are nil after a closed loop.
type measurement struct {
	latency, service, late *latency.Histogram
	good, refused          int64 // operations of an open loop
}

// encode stores the histograms in res.
func (m measurement) encode(res *Result) error {
	for _, h := range []struct {
		from *latency.Histogram
		to   *string
	}{{m.latency, &res.Latency}, {m.service, &res.Service}, {m.late, &res.Late}} {
		if h.from == nil {
			continue
		}
		s, err := h.from.Encode()
		if err != nil {
			return err
		}
		*h.to = s
	}
	return nil
}

// explain turns a worker's error into one that says what it means here.
func explain(err error, ph Phase) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the server stopped answering: an operation was still open %v after the end of the phase (%w)", ph.Grace, err)
	}
	return err
}

// crew is the workers of a phase.
type crew struct {
	wg   sync.WaitGroup
	stop atomic.Bool           // no further operation is to begin
	fail atomic.Pointer[error] // the first error of any worker
}

// start starts a worker. A worker's error stops the others.
func (c *crew) start(work func() error) {
	c.wg.Go(func() {
		if err := work(); err != nil {
			c.fail.CompareAndSwap(nil, &err)
			c.stop.Store(true)
		}
	})
}

// wait waits for all workers and returns the first error.
func (c *crew) wait() error {
	c.wg.Wait()
	if err := c.fail.Load(); err != nil {
		return *err
	}
	return nil
}

// closedLoop runs every session as fast as the server answers. Each runs at least one operation,
// however late its goroutine starts. A single reading of the clock ends an operation and begins the
// next. A multiplexer has a loop of its own.
func closedLoop(sessions []session, ph Phase) (measurement, error) {
	var c crew
	rec := latency.NewRecorder()
	timer := time.AfterFunc(ph.Duration, func() { c.stop.Store(true) })
	defer timer.Stop()
	for _, s := range sessions {
		c.start(func() error {
			shard := rec.Shard()
			defer shard.Flush()
			if m, ok := s.(multiplexer); ok {
				return m.loop(c.stop.Load, shard.Record)
			}
			last := time.Now()
			for n := 0; !c.stop.Load() || n == 0 && c.fail.Load() == nil; n++ {
				if err := s.op(); err != nil {
					return err
				}
				now := time.Now()
				shard.Record(now.Sub(last))
				last = now
			}
			return nil
		})
	}
	err := c.wait()
	return measurement{latency: rec.Histogram()}, err
}
