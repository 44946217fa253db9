package loop

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// newTestAcceptPoller makes an AcceptPoller of n eventfds that start at 0: not ready.
func newTestAcceptPoller(t *testing.T, n int) (*AcceptPoller, []int) {
	t.Helper()
	fds := make([]int, n)
	for i := range fds {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE)
		if err != nil {
			t.Fatalf("eventfd: %v", err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		fds[i] = fd
	}
	s, err := NewAcceptPoller(fds)
	if err != nil {
		t.Fatalf("NewAcceptPoller: %v", err)
	}
	t.Cleanup(s.Close)
	return s, fds
}

// notYet lets Backoff wait for all of its time.
func notYet() bool { return false }

// Backoff ends early with every event that ends a wait.
func TestAcceptPollerBackoff(t *testing.T) {
	past, never := time.Unix(1, 0), time.Time{}
	for name, tt := range map[string]struct {
		before, meanwhile func(s *AcceptPoller)
		want              error
	}{
		"deadline that passes":         {before: func(s *AcceptPoller) { _ = s.SetDeadline(time.Now().Add(time.Millisecond)) }, want: errTimeout},
		"deadline that has passed":     {before: func(s *AcceptPoller) { _ = s.SetDeadline(past) }, want: errTimeout},
		"deadline moved to the past":   {meanwhile: func(s *AcceptPoller) { _ = s.SetDeadline(past) }, want: errTimeout},
		"deadline moved several times": {meanwhile: func(s *AcceptPoller) { _ = s.SetDeadline(never); _ = s.SetDeadline(time.Now().Add(time.Millisecond)) }, want: errTimeout},
		"closed":                       {before: func(s *AcceptPoller) { s.Close() }, want: ErrClosed},
		"Close":                        {meanwhile: func(s *AcceptPoller) { s.Close() }, want: ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newTestAcceptPoller(t, 1)
			if tt.before != nil {
				tt.before(s)
			}
			backedOff := make(chan error, 1)
			go func() { backedOff <- s.Backoff(time.Hour, notYet) }()
			if tt.meanwhile != nil {
				time.Sleep(2 * backoffStep) // either is fine: before Backoff sleeps, or while
				tt.meanwhile(s)
			}
			if err := testnet.Receive(t, "Backoff", backedOff); err != tt.want {
				t.Errorf("Backoff: got %v, want %v", err, tt.want)
			}
		})
	}
	t.Run("enough", func(t *testing.T) {
		s, _ := newTestAcceptPoller(t, 1)
		var enough atomic.Bool
		asked, backedOff := make(chan struct{}, 10), make(chan error, 1)
		go func() {
			backedOff <- s.Backoff(time.Hour, func() bool {
				asked <- struct{}{}
				return enough.Load()
			})
		}()
		testnet.Receive(t, "the first question", asked)
		s.Retry()
		testnet.Receive(t, "the question after Retry", asked)
		enough.Store(true)
		s.Retry()
		if err := testnet.Receive(t, "Backoff", backedOff); err != nil {
			t.Errorf("Backoff: got %v, want nil", err)
		}
	})
	t.Run("asleep", func(t *testing.T) {
		s, _ := newTestAcceptPoller(t, 1)
		looks := 0
		if err := s.Backoff(50*time.Millisecond, func() bool { looks++; return false }); err != nil || looks != 1 {
			t.Errorf("Backoff: got %v, and looked %d times, want nil, once: it must not wake up in between", err, looks)
		}
	})
	t.Run("to its end", func(t *testing.T) {
		s, fds := newTestAcceptPoller(t, 1)
		fire(fds[0]) // which is of no interest
		_ = s.SetDeadline(time.Now().Add(time.Hour))
		begin := time.Now()
		if err := s.Backoff(5*time.Millisecond, notYet); err != nil {
			t.Errorf("Backoff: got %v, want nil", err)
		}
		if took := time.Since(begin); took < 5*time.Millisecond {
			t.Errorf("Backoff: took %v, want 5ms or more", took)
		}
	})
}

func TestNewSetFails(t *testing.T) {
	testnet.NoLeaks(t)
	s, err := NewAcceptPoller([]int{-1})
	var se *os.SyscallError
	if s != nil || !errors.As(err, &se) || se.Syscall != "epoll_ctl" || se.Err != syscall.EBADF {
		t.Errorf("NewAcceptPoller(-1): got %v, %v, want nil, epoll_ctl: %v", s, err, syscall.EBADF)
	}
}

// Close waits for the functions of Wait and Use, whatever os.File's Close does: after Fd it doesn't.
func TestAcceptPollerCloseWaitsByItself(t *testing.T) {
	for name, use := range map[string]func(s *AcceptPoller, fds []int, f func()) error{
		"Wait": func(s *AcceptPoller, fds []int, f func()) error {
			fire(fds[0])
			return s.Wait(nil, func(int, Readiness) bool { f(); return true })
		},
		"Use": func(s *AcceptPoller, _ []int, f func()) error { return s.Use(f) },
	} {
		t.Run(name, func(t *testing.T) {
			s, fds := newTestAcceptPoller(t, 1)
			s.epoll.file.Fd()
			running, finish := make(chan struct{}), make(chan struct{})
			var finished atomic.Bool
			using := startErr(func() error {
				return use(s, fds, func() {
					close(running)
					<-finish
					finished.Store(true)
				})
			})
			testnet.Receive(t, "the function", running)
			closed := make(chan bool, 1)
			testnet.GoBlocked(t, "Close", func() {
				s.Close()
				closed <- finished.Load()
			})
			if err := s.Use(func() { t.Error("called after Close") }); err != ErrClosed {
				t.Errorf("Use after Close: got %v, want %v", err, ErrClosed)
			}
			close(finish)
			if !testnet.Receive(t, "Close", closed) {
				t.Error("Close returned while the function was running")
			}
			if r := await(t, name, using); r.err != nil {
				t.Errorf("%s: got %v, want nil", name, r.err)
			}
		})
	}
}

// ticketTakers are goroutines that wait at a gate, which lets one through for each ticket.
type ticketTakers struct {
	t       *testing.T
	poller  *AcceptPoller
	tickets atomic.Int64
	taken   atomic.Int64
	ended   chan error
}

const takers = 4

func startTakers(t *testing.T) *ticketTakers {
	s, _ := newTestAcceptPoller(t, 1)
	k := &ticketTakers{t: t, poller: s, ended: make(chan error, takers)}
	for range takers {
		go k.take()
	}
	return k
}

func (k *ticketTakers) take() {
	for {
		switch err := k.poller.Wait(k.gate, nil); err {
		case nil:
			k.taken.Add(1)
		case os.ErrDeadlineExceeded:
			runtime.Gosched()
		default:
			k.ended <- err
			return
		}
	}
}

func (k *ticketTakers) gate() GateState {
	for {
		switch n := k.tickets.Load(); {
		case n == 0:
			return GateShut
		case k.tickets.CompareAndSwap(n, n-1):
			return GateDone
		}
	}
}

// give adds a ticket, and wakes a goroutine for it.
func (k *ticketTakers) give() {
	k.tickets.Add(1)
	k.poller.Wake()
}

// await waits until n tickets were taken in all. It sleeps only if that takes long.
func (k *ticketTakers) await(n int64) {
	k.t.Helper()
	for spins := 0; k.taken.Load() < n; spins++ {
		if runtime.Gosched(); spins > 100_000 {
			testnet.Eventually(k.t, "all wake-ups", func() bool { return k.taken.Load() == n })
		}
	}
}

// end closes the poller, and has all goroutines end.
func (k *ticketTakers) end() {
	k.t.Helper()
	k.poller.Close()
	for range takers {
		if err := testnet.Receive(k.t, "Wait", k.ended); err != ErrClosed {
			k.t.Errorf("got %v, want ErrClosed", err)
		}
	}
}

// TestAcceptPollerWakeBursts has several wake-ups come at once: a waiter that an earlier one has woken
// must not take a later one away from a waiter that is about to sleep.
func TestAcceptPollerWakeBursts(t *testing.T) {
	const burst = 3
	rounds := 200_000
	if testing.Short() || race.Enabled {
		rounds = 20_000
	}
	k := startTakers(t)
	for round := range int64(rounds) {
		for range burst {
			k.give()
		}
		k.await((round + 1) * burst)
	}
	k.end()
}

// TestAcceptPollerWakeAfterDeadline has a Wake come between the end of a wait by its deadline and the
// waiter's look at why it ended, when another waiter sleeps by now.
func TestAcceptPollerWakeAfterDeadline(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the sleeper doesn't run before the other has looked
	for range 100 {
		s, _ := newTestAcceptPoller(t, 1)
		var asked, open atomic.Bool
		gate := func() GateState {
			defer asked.Store(true)
			if open.Load() {
				return GateDone
			}
			return GateShut
		}
		before := s.resets.Load()
		s.SetDeadline(time.Now().Add(-time.Second))
		if err := s.wait(gate, nil); err != os.ErrDeadlineExceeded {
			t.Fatalf("got %v, want a timeout", err)
		}
		s.SetDeadline(time.Time{})
		sleeper := startErr(func() error { return s.Wait(gate, nil) })
		testnet.Eventually(t, "a sleeper", asked.Load)
		open.Store(true)
		s.Wake()
		s.unkick(before) // by the waiter that has timed out
		if r := await(t, "Wait", sleeper); r.err != nil {
			t.Fatalf("got %v, want nil", r.err)
		}
		s.Close()
	}
}

// TestAcceptPollerWakeAmidDeadlines has wake-ups come while deadlines end waits and are extended: none
// is lost.
func TestAcceptPollerWakeAmidDeadlines(t *testing.T) {
	rounds := 100_000
	if testing.Short() || race.Enabled {
		rounds = 10_000
	}
	k := startTakers(t)
	for round := range int64(rounds) {
		k.poller.SetDeadline(time.Now().Add(time.Duration(round%3) * 5 * time.Microsecond))
		for range round % 5 {
			runtime.Gosched()
		}
		k.poller.SetDeadline(time.Time{})
		for range round % 7 {
			runtime.Gosched()
		}
		k.give()
		k.await(round + 1)
	}
	k.end()
}

// TestAcceptPollerWakeKeepsDeadline has Wake come in between a wait and its deadline, and after it.
func TestAcceptPollerWakeKeepsDeadline(t *testing.T) {
	s, fds := newTestAcceptPoller(t, 1)
	shut := func() GateState { return GateShut }
	fire(fds[0])
	s.Wake() // nothing waits
	begin := time.Now()
	s.SetDeadline(begin.Add(50 * time.Millisecond))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				s.Wake()
			}
		}
	}()
	var errs [3]<-chan result
	for i := range errs {
		errs[i] = startErr(func() error { return s.Wait(shut, nil) })
	}
	for _, done := range errs {
		if r := await(t, "Wait", done); r.err != os.ErrDeadlineExceeded || time.Since(begin) < 50*time.Millisecond {
			t.Errorf("got %v after %v, want a timeout after 50 ms", r.err, time.Since(begin))
		}
	}
	close(stop)
	<-stopped
	s.SetDeadline(time.Time{})
	done := startErr(func() error { return s.Wait(func() GateState { return GateDone }, nil) })
	if r := await(t, "Wait", done); r.err != nil {
		t.Errorf("through a gate that is done: got %v, want nil", r.err)
	}
}
