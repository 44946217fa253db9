package pool

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// Stats counts a Pool's work since New and the buffers that it holds. The public Stats has the same
// fields, and says what they mean.
type Stats struct {
	Gets, Misses, Leaked, Foreign uint64

	BuffersInUse int
	BytesInUse   int64
	BytesKept    int64
	KeptBytesMax int64
}

// Stats counts the buffers of the pool. That takes about 50 ns for each, during which a Get that
// has to allocate waits; others don't.
func (p *Pool) Stats() Stats {
	var s Stats
	r := &p.roster
	r.mu.Lock()
	r.sweepLocked(func(rec *record) {
		references, gets := rec.look()
		s.Gets += gets
		switch {
		case references > 0:
			s.BuffersInUse++
			s.BytesInUse += rec.bytes
		case rec.kept():
			s.BytesKept += rec.bytes
		}
	})
	s.Gets += r.gets
	s.Misses, s.Leaked = r.misses, r.leaked
	s.Foreign = p.foreign.Load()
	for i := range p.bare {
		p.bare[i].addToLocked(&s, classBytesMin<<i)
	}
	p.kept.Store(s.BytesKept)
	if config := p.config.Load(); config != nil {
		s.KeptBytesMax = config.KeptBytesMax
	}
	r.mu.Unlock()
	return s
}

// ReadStats is Default().Stats().
func ReadStats() Stats { return shared.Stats() }

// leak is a buffer of Get that has not been released, or not yet.
type leak struct {
	bytes int64     // its capacity
	stack []uintptr // of the goroutine that got it, if it was sampled; see runtime.CallersFrames
}

// String describes the leak in a line, followed by the stack if there is one.
func (l leak) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "a buffer of %d bytes", l.bytes)
	if len(l.stack) == 0 {
		return s.String()
	}
	s.WriteString(", which was got by")
	frames := runtime.CallersFrames(l.stack)
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		fmt.Fprintf(&s, "\n\t%s\n\t\t%s:%d", frame.Function, frame.File, frame.Line)
	}
	return s.String()
}

// CheckLeaks returns an error that describes the buffers in use and those that
// leaked, or nil. Tests call it at their end.
func (p *Pool) CheckLeaks() error {
	var report strings.Builder
	p.roster.mu.Lock()
	p.roster.sweepLocked(func(rec *record) {
		if rec.references() > 0 {
			fmt.Fprintln(&report, "in use:", rec.leak())
		}
	})
	for _, l := range p.roster.leaks {
		fmt.Fprintln(&report, "garbage-collected without being released:", l)
	}
	p.roster.mu.Unlock()
	if s := p.Stats(); s.BuffersInUse > 0 || s.Leaked > 0 {
		return fmt.Errorf("pool: %d buffers are in use and %d leaked\n%s", s.BuffersInUse, s.Leaked, report.String())
	}
	return nil
}

// CheckLeaks is Default().CheckLeaks(), and its error names Growables that hold memory, too.
func CheckLeaks() error {
	err := shared.CheckLeaks()
	if n := growables.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("pool: %d Growables hold memory: call Release on each", n))
	}
	return err
}
