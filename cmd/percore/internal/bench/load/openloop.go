package load

import (
	"cmp"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/latency"
)

// openLoop begins operations at the times of a schedule. The phase decides whether an operation
// takes the first free session or a certain one. If that session isn't free, the operation waits,
// and the wait counts as latency.
//
// sleep is how the pacer waits. A test passes a function that doesn't really wait.
func openLoop(sessions []session, ph Phase, sleep func(time.Duration)) (measurement, error) {
	// Go's scheduler gets one processor more. Otherwise the workers would miss the processor that
	// the pacer sleeps on, until the runtime notices.
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + 1)
	defer runtime.GOMAXPROCS(procs)

	var c crew
	corrected, service, late := latency.NewRecorder(), latency.NewRecorder(), latency.NewRecorder()
	var good, refused atomic.Int64
	schedule, queues := ph.schedule(len(sessions))
	for i, s := range sessions {
		due := queues[i%len(queues)]
		c.start(func() error {
			fromDue, fromStart := corrected.Shard(), service.Shard()
			defer fromDue.Flush()
			defer fromStart.Flush()
			for at := range due {
				if c.stop.Load() {
					break
				}
				start := time.Now()
				switch err := s.op(); err {
				case nil:
				case errRefused:
					refused.Add(1)
					continue
				default:
					return err
				}
				end := time.Now()
				if end.Sub(at) <= ph.Within {
					good.Add(1)
				}
				fromDue.Record(end.Sub(at))
				fromStart.Record(end.Sub(start))
			}
			return nil
		})
	}
	c.start(func() error {
		c.pace(schedule, queues, late.Shard(), sleep)
		for _, due := range queues {
			close(due)
		}
		return nil
	})
	err := c.wait()
	return measurement{corrected.Histogram(), service.Histogram(), late.Histogram(), good.Load(), refused.Load()}, err
}

// An arrival is an operation that is due.
type arrival struct {
	at    time.Duration // from the beginning of the phase
	queue int           // of the session for this operation
}

// schedule returns the arrivals of an open loop in order, and their queues: one queue for all
// sessions, or one for each. The queues have room for all arrivals.
func (ph *Phase) schedule(sessions int) ([]arrival, []chan time.Time) {
	var all []arrival
	queues := make([]chan time.Time, sessions)
	switch {
	case ph.PauseMax > 0:
		all = pausing(sessions, ph.PauseMin, ph.PauseMax, ph.Duration, ph.Seed)
	case !ph.InTurn:
		queues = queues[:1]
		fallthrough
	default:
		for i, at := range poisson(ph.Rate, ph.Duration, ph.Seed) {
			all = append(all, arrival{at, i % len(queues)})
		}
	}
	lengths := make([]int, len(queues))
	for _, a := range all {
		lengths[a.queue]++
	}
	for i, n := range lengths {
		queues[i] = make(chan time.Time, n)
	}
	return all, queues
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

// poisson returns the times, from the beginning of a phase, at which operations are due. The
// operations arrive independently of each other at rate per second. As in a closed loop there is at
// least one: the rate is a part of a measured rate, which a busy machine may make low. Equal seeds
// give equal schedules, so every arm faces the same bursts.
func poisson(rate float64, d time.Duration, seed uint64) []time.Duration {
	rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	var times []time.Duration
	at := time.Duration(0)
	for {
		at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
		switch {
		case at < d:
			times = append(times, at)
		case len(times) == 0:
			return []time.Duration{0}
		default:
			return times
		}
	}
}

// pace sends every time of the schedule to its queue when that time has come, and records how late
// it was itself. It sleeps in its own thread, because the runtime's timers aren't precise enough.
// An idle Go program waits in epoll_wait, which has a resolution of a millisecond.
func (c *crew) pace(schedule []arrival, queues []chan time.Time, late *latency.Shard, sleep func(time.Duration)) {
	defer late.Flush()
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
		queues[due.queue] <- at
		late.Record(time.Since(at))
	}
}
