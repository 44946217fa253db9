package pool

import (
	"fmt"
	"runtime"
	"strings"
)

// Leak is a buffer that has not been released, or not yet.
type Leak struct {
	Bytes      int64 // its capacity
	References int   // how many Releases are missing

	// Events tells where it was acquired, first, and where it was retained, sliced
	// and released since, the most recent ones. Checking build only.
	Events []Event
}

// Event is something that was done to a buffer, with the stack of who did it.
type Event struct {
	Op    string // the function of this package, such as "Get" or "Release"
	Stack []uintptr
}

// Leaks lists the buffers in use. In a checking build it has their stacks and lists
// slices as well. Tests call it at their end; in a program at work it lists every
// buffer that happens to be needed right now. It is safe for concurrent use and
// takes time in proportion to the number of buffers.
func (p *Pool) Leaks() []Leak { return p.leaks() }

// CheckLeaks returns an error that describes what has not been released: the
// buffers in use, and the number of those that the garbage collector found
// abandoned. It has the form that a TestMain of this module can ask repeatedly
// until what still runs has finished.
func (p *Pool) CheckLeaks() error {
	var report strings.Builder
	for _, leak := range p.Leaks() {
		fmt.Fprintln(&report, "leaked", leak)
	}
	if n := p.Stats().Leaked; n > 0 {
		fmt.Fprintf(&report, "%d buffers were garbage-collected without being released\n", n)
	}
	if report.Len() == 0 {
		return nil
	}
	return fmt.Errorf("pool: %s", strings.TrimSpace(report.String()))
}

// Leaks is Default().Leaks().
func Leaks() []Leak { return shared.Leaks() }

// CheckLeaks is Default().CheckLeaks().
func CheckLeaks() error { return shared.CheckLeaks() }

// String describes the leak in a line, followed by the stacks if there are any.
func (l Leak) String() string {
	return fmt.Sprintf("buffer of %d bytes, references left: %d%s", l.Bytes, l.References, describe(l.Events))
}

// String returns the operation and its stack, a line for each frame.
func (e Event) String() string {
	var s strings.Builder
	s.WriteString(e.Op)
	frames := runtime.CallersFrames(e.Stack)
	for more := len(e.Stack) > 0; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		fmt.Fprintf(&s, "\n\t%s\n\t\t%s:%d", frame.Function, frame.File, frame.Line)
	}
	return s.String()
}

// describe lists events, each on lines of its own.
func describe(events []Event) string {
	var s strings.Builder
	for _, e := range events {
		s.WriteString("\n")
		s.WriteString(e.String())
	}
	return s.String()
}
