package load

import (
	"cmp"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// crew is the workers of a phase, and what they record.
type crew struct {
	workers errgroup.Group
	stop    atomic.Bool // no further operation is to begin

	latency *latencies
	late    *latencies // see scenario.Result; nil after a closed loop
}

// start starts a worker. A worker's error stops the others.
func (c *crew) start(work func() error) {
	c.workers.Go(func() error {
		err := work()
		if err != nil {
			c.stop.Store(true)
		}
		return err
	})
}

// closedLoop runs every session as fast as the server answers, and for one operation at least. A single
// reading of the clock ends an operation and begins the next. A multiplexer has a loop of its own.
func closedLoop(sessions []session, d time.Duration) (*crew, error) {
	c := &crew{latency: newLatencies()}
	timer := time.AfterFunc(d, func() { c.stop.Store(true) })
	defer timer.Stop()
	for _, s := range sessions {
		c.start(func() error {
			took := &shard{to: c.latency}
			defer took.flush()
			if m, ok := s.(multiplexer); ok {
				return m.loop(c.stop.Load, took.record)
			}
			last := time.Now()
			for n := 0; !c.stop.Load() || n == 0; n++ {
				if err := s.op(); err != nil {
					return err
				}
				now := time.Now()
				took.record(now.Sub(last))
				last = now
			}
			return nil
		})
	}
	return c, c.workers.Wait()
}

// openLoop begins operations at the times of a schedule: each on a certain session, or on the first
// that is free. If none is, the operation waits, and the wait counts as latency.
//
// sleep is how the pacer waits. A test passes a function that doesn't really wait.
func openLoop(sessions []session, schedule []arrival, sleep func(time.Duration)) (*crew, error) {
	// Go's scheduler gets one processor more. Otherwise the workers would miss the processor that
	// the pacer sleeps on, until the runtime notices.
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + 1)
	defer runtime.GOMAXPROCS(procs)

	c := &crew{latency: newLatencies(), late: newLatencies()}
	queues := newQueues(len(sessions), schedule)
	for i, s := range sessions {
		c.start(func() error { return c.serve(s, queues[i%len(queues)]) })
	}
	c.start(func() error {
		c.pace(schedule, queues, sleep)
		for _, due := range queues {
			close(due)
		}
		return nil
	})
	return c, c.workers.Wait()
}

// newQueues returns queues with room for all arrivals: one for each session, or one for all of them.
func newQueues(sessions int, schedule []arrival) (queues []chan time.Time) {
	lengths := make([]int, sessions)
	if schedule[0].session < 0 {
		lengths = make([]int, 1)
	}
	for _, a := range schedule {
		lengths[max(0, a.session)]++
	}
	for _, n := range lengths {
		queues = append(queues, make(chan time.Time, n))
	}
	return queues
}

// serve performs the operations that are due on a session.
func (c *crew) serve(s session, due <-chan time.Time) error {
	took := &shard{to: c.latency}
	defer took.flush()
	for at := range due {
		if c.stop.Load() {
			break
		}
		if err := s.op(); err != nil {
			return err
		}
		took.record(time.Since(at))
	}
	return nil
}

// pace sends every time of the schedule to its queue when that time has come, and records how late
// it was itself. It sleeps in its own thread, because the runtime's timers aren't precise enough.
// An idle Go program waits in epoll_wait, which has a resolution of a millisecond.
func (c *crew) pace(schedule []arrival, queues []chan time.Time, sleep func(time.Duration)) {
	late := &shard{to: c.late}
	defer late.flush()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sharpenSleep()
	began := time.Now()
	for _, due := range schedule {
		at := began.Add(due.at)
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			sleep(wait)
		}
		if c.stop.Load() {
			return
		}
		queues[max(0, due.session)] <- at
		late.record(time.Since(at))
	}
}

// An arrival is an operation that is due.
type arrival struct {
	at      time.Duration // from the beginning of the phase
	session int           // that performs it; -1: the first that is free
}

// scheduleOf returns the arrivals of an open loop in order.
func scheduleOf(s *scenario.Scenario, sessions int, ph *scenario.Phase) []arrival {
	if s.PauseMax > 0 {
		return pausing(sessions, s.PauseMin, s.PauseMax, ph.Duration, ph.Seed)
	}
	return poisson(ph.Rate, ph.Duration, ph.Seed)
}

// pausing returns the arrivals for sessions that each pause for a random time between two
// operations, from shortest to longest. Equal seeds give equal schedules.
func pausing(sessions int, shortest, longest, d time.Duration, seed uint64) []arrival {
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	var all []arrival
	for i := range sessions {
		for at := time.Duration(rng.Int64N(int64(longest))); at < d; at += shortest + time.Duration(rng.Int64N(int64(longest-shortest)+1)) {
			all = append(all, arrival{at, i})
		}
	}
	slices.SortFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// poisson returns arrivals that are independent of each other, at rate per second. As in a closed loop
// there is at least one: the rate is a part of a measured rate, which a busy machine may make low.
// Equal seeds give equal schedules, so every arm faces the same bursts.
func poisson(rate float64, d time.Duration, seed uint64) []arrival {
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	var all []arrival
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
		switch {
		case at < d:
			all = append(all, arrival{at, -1})
		case len(all) == 0:
			return []arrival{{0, -1}}
		default:
			return all
		}
	}
}
