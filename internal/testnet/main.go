package testnet

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/percore/percore/internal/pipes"
)

// leakGrace is how long the leftovers of a finished test may take to go away: goroutines that were told
// to stop but have not run yet, and the sockets that they close. It only bounds the wait before a leak
// is reported. It is a variable only so that the test of this report need not wait so long.
var leakGrace = 10 * time.Second

// childVariable names the helper that a re-executed test binary must run.
const childVariable = "PERCORE_TEST_CHILD"

// A Check returns an error if something was left behind, such as unreleased buffers. It is repeated
// for a while before its result counts.
type Check func() error

// An Option adds to Main's checks.
type Option func(*harness)

type harness struct {
	checks   []Check
	children map[string]func()
}

// WithCheck adds a leak check for the package, for example of pooled buffers.
func WithCheck(check Check) Option {
	return func(h *harness) { h.checks = append(h.checks, check) }
}

// WithChild names a function that StartChild can run in its own process. When run returns, the
// process exits, with status 0 unless run has left goroutines or descriptors behind.
func WithChild(name string, run func()) Option {
	return func(h *harness) { h.children[name] = run }
}

// Main is the body of a package's TestMain. It runs the tests and then fails, naming the culprits, if
// they left goroutines or descriptors behind that were not there before. It does not return.
func Main(m *testing.M, options ...Option) {
	h := &harness{children: make(map[string]func())}
	for _, option := range options {
		option(h)
	}
	if name := os.Getenv(childVariable); name != "" {
		h.runChild(name)
	}
	before := takeSnapshot()
	code := m.Run()
	// After a failure leaks are expected, and reporting them would bury it.
	if code == 0 {
		if err := awaitNoLeak(append(h.checks, before.check)...); err != nil {
			fmt.Fprintf(os.Stderr, "the tests passed but left something behind:\n%v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// NoLeaks makes a test fail if, after all its other cleanups, goroutines or descriptors are left
// that were not there when NoLeaks was called. Call it first in the test. It is not for tests that
// run in parallel with others.
func NoLeaks(t testing.TB) {
	t.Helper()
	before := takeSnapshot()
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return
		}
		if err := awaitNoLeak(before.check); err != nil {
			t.Errorf("the test left something behind:\n%v", err)
		}
	})
}

// snapshot is the state of the process that later states are compared with.
type snapshot struct {
	fds        map[int]string
	goroutines goleak.Option
}

func takeSnapshot() snapshot {
	warmUpRuntime()
	return snapshot{fds: openFDs(), goroutines: goleak.IgnoreCurrent()}
}

// warmUpRuntime makes the runtime open the descriptors that it keeps permanently (its epoll
// descriptor and the eventfd that wakes it), so that they count as old.
func warmUpRuntime() {
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		ln.Close()
	}
}

// check returns an error that lists every goroutine and descriptor younger than the snapshot.
func (s snapshot) check() error {
	var report strings.Builder
	if err := goleak.Find(s.goroutines); err != nil {
		fmt.Fprintln(&report, err)
	}
	leaked := leakedFDs(s.fds, openFDs())
	if report.Len() == 0 && len(leaked) == 0 {
		return nil
	}
	if report.Len() == 0 && onlyPipes(leaked) {
		collectPooledPipes()
	}
	for _, line := range leaked {
		fmt.Fprintln(&report, "leaked descriptor", line)
	}
	return fmt.Errorf("%s", strings.TrimSpace(report.String()))
}

// collectPooledPipes releases the pipes used for splicing. Ours are in a pool that we can empty. Package
// net keeps its pipes in a sync.Pool, which takes two collections to empty, and a third to run the
// functions that close them. See awaitNoLeak for why it is called only when nothing but pipes is left.
func collectPooledPipes() {
	pipes.Drain()
	for range 3 {
		runtime.GC()
	}
}

// awaitNoLeak repeats the checks until they all pass, and returns the last error when leakGrace has
// passed.
//
// It must not run the garbage collector while a socket may be among the leaks: the collector closes
// forgotten connections, which the checks look for.
func awaitNoLeak(checks ...Check) error {
	deadline := time.Now().Add(leakGrace)
	for {
		var complaints []string
		for _, check := range checks {
			if err := check(); err != nil {
				complaints = append(complaints, err.Error())
			}
		}
		if len(complaints) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s", strings.Join(complaints, "\n"))
		}
		runtime.Gosched()
		time.Sleep(20 * time.Millisecond)
	}
}
