package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

func init() {
	children = append(children, testnet.WithChild("crowd", crowd))
}

// crowd is a process with many connections to a server. Its orders, one per
// line, are "dial NETWORK ADDRESS N", "echo" (a round trip on each), "close" and
// "reset"; it answers each with "ok" or the error.
func crowd() {
	var conns []net.Conn
	defer func() { closeCrowd(conns) }()
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var err error
		switch words := strings.Fields(orders.Text()); words[0] {
		case "dial":
			count, _ := strconv.Atoi(words[3])
			conns, err = dialCrowd(words[1], words[2], count)
		case "echo":
			err = echoCrowd(conns)
		case "reset":
			for _, c := range conns {
				resetOnClose(c)
			}
			closeCrowd(conns)
			conns = nil
		case "close":
			closeCrowd(conns)
			conns = nil
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("ok")
	}
}

// crowdWorkers is how many connections of a crowd are used at once: few enough not to overflow a
// backlog, which costs seconds of retries.
const crowdWorkers = 64

func dialCrowd(network, address string, count int) ([]net.Conn, error) {
	conns, errs := make([]net.Conn, count), make([]error, count)
	inParallel(count, func(i int) {
		for {
			conns[i], errs[i] = net.Dial(network, address)
			if !errors.Is(errs[i], unix.EAGAIN) {
				return
			}
			time.Sleep(time.Millisecond) // the backlog of a unix socket is full
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, firstLine(err)
	}
	return conns, nil
}

func echoCrowd(conns []net.Conn) error {
	errs := make([]error, len(conns))
	inParallel(len(conns), func(i int) { errs[i] = roundTrip(conns[i], pattern(1+i%100)) })
	return firstLine(errors.Join(errs...))
}

func closeCrowd(conns []net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// firstLine keeps the first of joined errors.
func firstLine(err error) error {
	if err == nil {
		return nil
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(line)
}

func inParallel(count int, f func(i int)) {
	var wg sync.WaitGroup
	for worker := range crowdWorkers {
		wg.Go(func() {
			for i := worker; i < count; i += crowdWorkers {
				f(i)
			}
		})
	}
	wg.Wait()
}

// A crowdProcess is how the test controls a crowd.
type crowdProcess struct {
	t       testing.TB
	child   *testnet.ChildProcess
	answers *bufio.Scanner
}

func startCrowd(t testing.TB) *crowdProcess {
	child := testnet.StartChild(t, "crowd")
	return &crowdProcess{t, child, bufio.NewScanner(child.Stdout)}
}

// order sends the crowd an order and waits until it is done.
func (c *crowdProcess) order(format string, args ...any) {
	c.t.Helper()
	order := fmt.Sprintf(format, args...)
	fmt.Fprintln(c.child.Stdin, order)
	if !c.answers.Scan() {
		c.t.Fatalf("the crowd is gone after %q: %v", order, c.child.Wait())
	}
	if answer := c.answers.Text(); answer != "ok" {
		c.t.Fatalf("the crowd's answer to %q: got %q, want ok", order, answer)
	}
}

// crowdSize is how many connections a crowd opens: as many as the descriptors in each of the two
// processes, and the test's time, allow.
func crowdSize(t testing.TB) int {
	size := 5000
	if testing.Short() || race.Enabled {
		size = 1000
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatalf("getrlimit: %v", err)
	}
	const reserve = 200 // for everything else the processes have open
	if limit.Cur < uint64(size+reserve) {
		size = int(limit.Cur) - reserve
		t.Logf("only %d connections: the limit on open files is %d", size, limit.Cur)
	}
	return size
}

// TestHostileCrowd opens thousands of connections at once from another process, and uses all of
// them. It does so twice: the first time it closes them, the second time it resets them.
func TestHostileCrowd(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e engine) {
		for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
			t.Run(string(kind), func(t *testing.T) {
				testnet.NoLeaks(t)
				size := crowdSize(t)
				ln := testnet.Listen(t, e.listen, kind)
				server := startEcho(t, ln)
				witnessGoesOn := startWitness(t, ln)
				crowd := startCrowd(t)
				for _, farewell := range []string{"reset", "close"} {
					if farewell == "close" {
						size = min(size, 1000) // closed ones keep their ports for a minute
					}
					crowd.order("dial %s %s %d", ln.Addr().Network(), ln.Addr(), size)
					crowd.order("echo")
					if got := server.open.Load(); got != int64(size+1) {
						t.Errorf("got %d connections, want %d", got, size+1)
					}
					witnessGoesOn()
					crowd.order("%s", farewell)
					testnet.Eventually(t, "the server seeing them off", func() bool { return server.open.Load() == 1 })
					witnessGoesOn()
				}
				if err := crowd.child.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}
