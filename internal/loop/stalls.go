package loop

import (
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// Stalls are the writes that wait for their peer to read, of the descriptors that count there: see
// FD.CountStalls. Only a write that has to wait costs something. All methods are safe for concurrent
// use.
type Stalls struct {
	number uint32 // immutable; 1 is the first

	mu    sync.Mutex
	since map[*FD]int64 // when each began to wait, as monotime has it
}

// stallsShift is where the state of the write half has the number of its Stalls; 0: none. A pointer in
// the FD would cost each connection 16 bytes.
const stallsShift = 24

// stallsMade are all Stalls, by their number.
var stallsMade = []*Stalls{nil}

// NewStalls makes a Stalls. It is for variables of a package: it must not be called once there are
// descriptors, and at most 255 times.
func NewStalls() *Stalls {
	s := &Stalls{number: uint32(len(stallsMade)), since: make(map[*FD]int64)}
	stallsMade = append(stallsMade, s)
	return s
}

// CountStalls makes writes that begin to wait from now on count in s, and in no other; nil: in none.
func (f *FD) CountStalls(s *Stalls) {
	f.wr.state.And(1<<stallsShift - 1)
	if s != nil {
		f.wr.state.Or(s.number << stallsShift)
	}
}

// Count returns how many writes wait, and how many of these have waited for d or longer.
func (s *Stalls) Count(d time.Duration) (all, long int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := monotime.Now() - int64(d)
	for _, since := range s.since {
		if since <= last {
			long++
		}
	}
	return len(s.since), long
}

// waitForRoom is wait for the write half. Each wait counts by itself: a peer that reads, however slowly,
// ends one from time to time.
func (f *FD) waitForRoom() error {
	if s := stallsMade[f.wr.state.Load()>>stallsShift]; s != nil {
		s.begin(f)
		defer s.end(f)
	}
	return f.wr.wait(f)
}

func (s *Stalls) begin(f *FD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since[f] = monotime.Now()
}

func (s *Stalls) end(f *FD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, f)
}
