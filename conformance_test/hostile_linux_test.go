package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
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
	children = append(children,
		testnet.WithChild("crowd", crowd),
		testnet.WithChild("scarce", scarce))
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

// scarceFiles is the limit on open files that the child scarce lives with.
const scarceFiles = 64

// scarce is a process that serves HTTP with few descriptors on the engine named in its environment.
// It prints its address, and exits when its input ends.
func scarce() {
	limitFiles()
	ln, err := engineNamed(os.Getenv("ENGINE")).listen(os.Getenv("NETWORK"), os.Getenv("ADDRESS"))
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan struct{})
	server := &http.Server{
		Handler:  http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "hello") }),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(served)
		server.Serve(ln)
	}()
	fmt.Println(ln.Addr())
	io.Copy(io.Discard, os.Stdin)
	server.Close()
	<-served
}

// limitFiles takes all but a few descriptors from the process, so that the engine logs errors.
func limitFiles() {
	warnings.expected.Store(true)
	limit := unix.Rlimit{Cur: scarceFiles, Max: scarceFiles}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		log.Fatalf("setrlimit: %v", err)
	}
}

func engineNamed(name string) engine {
	for _, e := range engines {
		if e.name == name {
			return e
		}
	}
	log.Fatalf("no engine %q", name)
	return engine{}
}

// ask makes one HTTP request on a connection that stays open.
func ask(c net.Conn) error {
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := io.WriteString(c, hello); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "hello" {
		return fmt.Errorf("got %q, %v, want hello", body, err)
	}
	return nil
}

// TestHostileExhaustion opens more connections than the server's process has descriptors. The
// server must keep serving the connections it has, and must not spin. When some connections end, it
// must accept connections that waited.
func TestHostileExhaustion(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e engine) {
		for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
			t.Run(string(kind), func(t *testing.T) {
				testnet.NoLeaks(t)
				network, address := testnet.Address(t, kind)
				child := testnet.StartChild(t, "scarce", "ENGINE="+e.name, "NETWORK="+network, "ADDRESS="+address)
				output := bufio.NewScanner(child.Stdout)
				if !output.Scan() {
					t.Fatalf("the server did not start: %v", child.Wait())
				}
				dial := func() net.Conn {
					c, err := net.Dial(network, output.Text())
					if err != nil {
						t.Fatalf("dialing: %v", err)
					}
					t.Cleanup(func() { c.Close() })
					return c
				}
				early := dial()
				if err := ask(early); err != nil {
					t.Fatalf("before the exhaustion: %v", err)
				}
				var crowd []net.Conn
				for range 2 * scarceFiles {
					crowd = append(crowd, dial())
				}
				late := dial()
				testnet.Eventually(t, "the server running out of descriptors", func() bool {
					fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", child.PID()))
					return err == nil && len(fds) >= scarceFiles-1
				})
				for range 10 {
					if err := ask(early); err != nil {
						t.Fatalf("an early connection during the exhaustion: %v", err)
					}
				}
				wantNoSpin(t, child.PID())
				for _, c := range crowd {
					c.Close()
				}
				if err := ask(late); err != nil {
					t.Errorf("a connection that had to wait: %v", err)
				}
				if err := ask(dial()); err != nil {
					t.Errorf("a connection after the exhaustion: %v", err)
				}
				if err := ask(early); err != nil {
					t.Errorf("an early connection after the exhaustion: %v", err)
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// wantNoSpin fails the test if a process burns CPU time although no client sends a request. A loop
// that retries without a pause uses all of a core; a server that backs off uses almost nothing. The
// limit is half a core.
func wantNoSpin(t *testing.T, pid int) {
	t.Helper()
	const watched = 500 * time.Millisecond
	before := cpuTime(t, pid)
	time.Sleep(watched)
	if used := cpuTime(t, pid) - before; used > watched/2 {
		t.Errorf("the server used %v of CPU in %v of rest: it spins", used, watched)
	}
}

// cpuTime returns the CPU time a process has used, from /proc/PID/stat.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The second field, in parentheses, may contain anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("parsing %q: %v", stat, err)
	}
	const tick = time.Second / 100 // USER_HZ on every architecture Go runs on
	return time.Duration(user+system) * tick
}
