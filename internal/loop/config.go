package loop

import (
	"errors"
	"fmt"
	"net"
	"runtime"
)

// Strategy says how a loop waits for events. It changes nothing else.
type Strategy uint8

// The public package says what they cost.
const (
	Nested Strategy = iota // parks the loop's goroutine in the Go runtime's own poller: the default
	Thread                 // blocks a goroutine, and a thread, in epoll_pwait
)

// String returns the strategy's name.
func (s Strategy) String() string {
	switch s {
	case Nested:
		return "nested"
	case Thread:
		return "thread"
	}
	return fmt.Sprintf("Strategy(%d)", uint8(s))
}

// Config says how the loops of a [Group] run. The public Config, from which it is made, says what
// the fields mean.
type Config struct {
	Loops    int
	Strategy Strategy
	Pin      bool
	Name     string
}

// loopsMax is the limit of Config.Loops. A loop that has started costs two descriptors, a goroutine
// and some 20 KiB; more loops than this is a mistake in the units.
const loopsMax = 1024

// withDefaults checks c and fills in the defaults.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Loops < 0 || c.Loops > loopsMax:
		return c, fmt.Errorf("loop: Config.Loops is %d; it must be from 0 (one per processor) to %d", c.Loops, loopsMax)
	case c.Strategy > Thread:
		return c, fmt.Errorf("loop: Config.Strategy is %v; it must be Nested or Thread", c.Strategy)
	case c.Pin && c.Strategy != Thread:
		return c, errors.New("loop: Config.Pin needs Config.Strategy to be Thread; a nested loop has no thread to pin")
	}
	if c.Loops == 0 {
		c.Loops = runtime.GOMAXPROCS(0)
	}
	return c, nil
}

var (
	// ErrClosed is the error of a call on a descriptor that is closed, or is closed while
	// the call waits. It is [net.ErrClosed].
	ErrClosed = net.ErrClosed

	// ErrStopped is the error of a call on a group that has ended.
	ErrStopped = errors.New("loop: the group of loops has stopped")

	// ErrBusy is the error of watching a descriptor while a goroutine reads or writes on it.
	ErrBusy = errors.New("loop: a Read or a Write is under way on this descriptor; end it first, by a deadline for instance")

	// ErrArmed is the error of arming a readiness callback when the descriptor has one already.
	ErrArmed = errors.New("loop: a readiness callback is already armed on this descriptor")

	// ErrWouldWait is the error of a read that would have to wait, after [FD.SetNoWait]. It is a
	// temporary [net.Error], so that crypto/tls, for which other errors are permanent, can read on later.
	// It is not a timeout: no deadline has passed.
	ErrWouldWait error = wouldWait{}
)

// wouldWait is the type of ErrWouldWait.
type wouldWait struct{}

func (wouldWait) Error() string   { return "there is nothing to read, and the read must not wait" }
func (wouldWait) Timeout() bool   { return false }
func (wouldWait) Temporary() bool { return true }
