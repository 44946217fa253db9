//go:build !percore_net

package httpadapter

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/changedgo"
	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// However net/http waits for a request, connections are parked correctly or not at all, and
// connections that wait without net/http are always parked correctly. TestChangedNetHTTP shows this
// with versions of net/http's server that each differ from this toolchain's in one small way, see
// changedgo, with which it builds this package's tests. An environment variable selects the change,
// so net/http is compiled only once.
// The test binary then runs TestUnderChange once per change.

// changeVariable says which change is in effect, and probeVariable says that the probe is disabled.
const (
	changeVariable = "PERCORE_TEST_CHANGE"
	probeVariable  = "PERCORE_TEST_NO_PROBE"
)

// changes are the names that the edits know. If a change matters to parking, the way that net/http
// waits becomes unknown. Otherwise connections are parked.
var changes = []struct {
	name string
	way  probe.Way
}{
	{"", probe.Once}, // none
	{"larger buffers for answers", probe.Once},
	{"one deadline", probe.Unknown}, // before the body of a request could be served as one
	{"two deadlines", probe.Unknown},
	{"peek of 1", probe.Unknown},
	{"peek of 16", probe.Unknown},
	{"smaller buffers", probe.Unknown},
	{"larger buffers", probe.Unknown},
	{"bytes set aside", probe.Unknown},
	{"wait by SyscallConn", probe.Unknown},
	{"no end of the write deadline", probe.Unknown},
	{"StateIdle before the answer", probe.Unknown},
	{"an answer to the end", probe.Unknown},
	{"CloseWrite at the end", probe.Unknown},
	{"a read after the end", probe.Unknown},
	{"StateClosed before Close", probe.Unknown},
	{"no Close", probe.Unknown},
	{"a deadline after StateClosed", probe.Unknown},

	{changedgo.Next, probe.Twice},
	{"1.28: a deadline before", probe.Thrice},
	{"1.28: 5 ms", probe.Twice},
	{"1.28: 300 ms", probe.Twice},
	{"1.28: bytes set aside", probe.Twice}, // no connection that could be parked waits so
	{"1.28: no short deadline", probe.Unknown},
	{"1.28: short deadline kept", probe.Unknown},
	{"1.28: a byte first", probe.Unknown},
	{"1.28: two bytes", probe.Unknown},
	{"1.28: buffers kept", probe.Unknown},
	{"1.28: deadline set twice", probe.Unknown},
	{"1.28: deadline after the byte", probe.Unknown},
	{"1.28: StateIdle again", probe.Unknown},
	{"1.28: an answer to the end", probe.Unknown},
	{"1.28: a read after the end", probe.Unknown},
}

func TestChangedNetHTTP(t *testing.T) {
	needParking(t)
	if testing.Short() || race.Enabled || invariants.Enabled || runtime.GOARCH == "386" {
		t.Skip("net/http is compiled once more for this, which takes a while: the plain test does it")
	}
	binary := buildChanged(t)
	for _, c := range changes {
		t.Run("change="+c.name, func(t *testing.T) {
			t.Parallel()
			out, err := runChanged(binary, c.name)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !strings.Contains(out, fmt.Sprintf("probe: way %d", c.way)) {
				t.Errorf("want the way %d\n%s", c.way, out)
			}
		})
	}
	// If the probe misses something, a lease that is used after its end is still not parked.
	t.Run("without a probe", func(t *testing.T) {
		t.Parallel()
		if out, err := runChanged(binary, "one deadline", probeVariable+"=1"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// buildChanged builds this package's tests with a net/http that has all changes.
func buildChanged(t *testing.T) (binary string) {
	t.Helper()
	if version := testnet.GoCommand(t, nil, "env", "GOVERSION"); version != strings.Fields(runtime.Version())[0] {
		t.Skipf("the go command here is %s, and this is built by %s", version, runtime.Version())
	}
	dir := t.TempDir()
	err := changedgo.Write(dir, testnet.GoCommand(t, nil, "env", "GOROOT"), changedgo.Edits("changeos.Getenv(\""+changeVariable+"\")"))
	if err != nil {
		t.Fatalf("%v\nUntil then the probe looks after users.", err)
	}
	binary = filepath.Join(dir, "changed.test")
	t.Setenv("GOROOT", filepath.Join(dir, "goroot"))
	testnet.GoCommand(t, nil, "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".")
	return binary
}

func runChanged(binary, change string, env ...string) (string, error) {
	cmd := exec.Command(binary, "-test.run=^TestUnderChange$", "-test.v", "-test.timeout=5m", "-test.parallel=8")
	cmd.Env = append(append(os.Environ(), changeVariable+"="+change), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestUnderChange runs with the changed net/http. Clients pause wherever a connection could be
// parked and must not be. Each request must be served once, as it was sent, and answered.
func TestUnderChange(t *testing.T) {
	change, ok := os.LookupEnv(changeVariable)
	if !ok {
		t.Skip("only with a changed net/http: see TestChangedNetHTTP")
	}
	way, err := probe.NetHTTP()
	t.Logf("probe: way %d: %v", way, err)
	if change == "no Close" {
		return // nothing ends connections in that case
	}
	type play struct {
		name string
		play func(t *testing.T, overTLS bool)
	}
	plays := []play{{"soon", playPauses(20*time.Millisecond, time.Millisecond)}, {"fast path", playFastPath}}
	if os.Getenv(probeVariable) != "" {
		plays = []play{{"one deadline", playWithoutProbe}}
	}
	if strings.HasPrefix(change, "1.28: ") {
		const rare = 2*DefaultParkAfter + 10*time.Millisecond
		plays = append(plays, play{"paused", playPauses(80*time.Millisecond, rare)})
		if way != probe.Unknown {
			plays = append(plays, play{"late", playPauses(2*rare, rare)})
		}
	}
	for _, p := range plays {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS=%t", p.name, overTLS), func(t *testing.T) {
				t.Parallel()
				p.play(t, overTLS)
			})
		}
	}
}

// pausedStream is what a client sends on a connection, with pauses, and the answers.
type pausedStream struct {
	pieces []string
	want   []string
}

var pausedStreams = []pausedStream{
	{ // the body would be taken for a request if the header before it were forgotten
		[]string{
			"POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n" +
				fmt.Sprintf("POST /b HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n", len(request("/smuggled"))),
			"\r\n" + request("/smuggled"),
		},
		[]string{"POST /a ", "POST /b " + request("/smuggled")},
	},
	{
		[]string{request("/a"), request("/b"), request("/c")},
		[]string{"GET /a ", "GET /b ", "GET /c "},
	},
	{
		[]string{request("/a") + "GE", "T /b HTTP/1.1\r\nHost: test\r\n\r\n" + "G", "ET", " /c HTTP/1.1\r\nHost: test\r\n\r\n"},
		[]string{"GET /a ", "GET /b ", "GET /c "},
	},
	{
		[]string{request("/a") + "GET ", "/b HTTP/1.1\r\nHost: test\r\n\r\n" + "GET /c HTTP/1.1\r\n", "Host: test\r\n\r\n"},
		[]string{"GET /a ", "GET /b ", "GET /c "},
	},
	{
		[]string{
			"POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbo", "dy",
			"\r\nGET /b HTTP/1.1\r\nHost: test\r\n\r\n", request("/c"),
		},
		[]string{"POST /a body", "GET /b ", "GET /c "},
	},
	{ // as many bytes as a buffer holds
		[]string{request("/a") + longRequest[:probe.ReadBytes], longRequest[probe.ReadBytes:], request("/c")},
		[]string{"GET /a ", "GET /b ", "GET /c "},
	},
}

var longRequest = "GET /b HTTP/1.1\r\nHost: test\r\nLong: " + strings.Repeat("x", probe.ReadBytes) + "\r\n\r\n"

// playPauses plays the streams, each on its own connection. The pauses are long enough for a
// connection to be parked after parkAfter, or for net/http to notice them.
func playPauses(length, parkAfter time.Duration) func(t *testing.T, overTLS bool) {
	return func(t *testing.T, overTLS bool) { playStreams(t, overTLS, length, ParkAfter(parkAfter)) }
}

func playStreams(t *testing.T, overTLS bool, length time.Duration, opts ...Option) {
	f, seen, dial := startSeeing(t, overTLS, opts...)
	pause := func() { time.Sleep(length) }
	var playing sync.WaitGroup
	for _, s := range pausedStreams {
		c := dial()
		playing.Go(func() {
			for _, piece := range s.pieces {
				c.send(piece)
				pause()
			}
			for _, want := range s.want {
				if got := c.answer(); got != want {
					t.Errorf("got the answer %q, want %q", got, want)
				}
			}
			pause()
			if got := seen(c); !slices.Equal(got, s.want) {
				t.Errorf("the handler saw %q, want %q", got, s.want)
			}
		})
	}
	playing.Wait()
	stats := f.server.Stats()
	if _, err := probe.NetHTTP(); stats.Unsafe != (err != nil) {
		t.Errorf("Stats.Unsafe: got %t, want %t", stats.Unsafe, err != nil)
	}
	if !stats.Unsafe {
		f.awaitParked(len(pausedStreams))
	} else if stats.Parks > 0 {
		t.Errorf("connections were parked %d times, want never", stats.Parks)
	}
}

// playFastPath makes the fast path serve requests, and net/http one in between on some connections.
// Then HandOver moves the waiting connections. It moves all of them unless the way that net/http
// waits is unknown: then net/http keeps its own.
func playFastPath(t *testing.T, overTLS bool) {
	f, _, dial := startSeeing(t, overTLS, fastPath())
	way, _ := probe.NetHTTP()
	const conns, others = 6, 3
	var clients []*client
	for i := range conns {
		c := dial()
		clients = append(clients, c)
		c.wantGet("/a", "GET /a ")
		if i < others {
			for range 2 {
				c.send("GET /b HTTP/1.1\r\nHost: test\r\nPragma: no-cache\r\n\r\n")
				if got := c.answer(); got != "GET /b " {
					t.Errorf("got %q, want net/http's answer", got)
				}
				time.Sleep(80 * time.Millisecond)
			}
		}
		c.wantGet("/c", "GET /c ")
		c.wantGet("/d", "GET /d ")
	}
	want := uint64(conns + 2*(conns-others))
	if got := f.server.FastPathStats().Requests; got < want {
		t.Errorf("the fast path has served %d requests, want at least %d", got, want)
	}
	if overTLS {
		return
	}
	next := startSuccessor(t, named("next"))
	if err := f.handOver(next.give); err != nil {
		t.Errorf("HandOver: %v", err)
	}
	for i, c := range clients {
		if want := "next/e"; way != probe.Unknown || i >= others {
			c.wantGet("/e", want)
		} else {
			c.wantGet("/e", "GET /e ")
		}
	}
}

// playWithoutProbe sends the beginning of a request, for which the connection would be parked.
// net/http answers it, because it was cut short.
func playWithoutProbe(t *testing.T, overTLS bool) {
	f, seen, dial := startSeeing(t, overTLS, func(c *config) {
		c.checkNetHTTP = func() (probe.Way, error) { return probe.Once, nil }
	})
	c := dial()
	c.send(pausedStreams[0].pieces[0])
	testnet.Eventually(t, "the first request being served", func() bool { return len(seen(c)) > 0 }) // so it was accepted
	testnet.Eventually(t, "the connection being closed", func() bool { return f.server.Stats().Conns == 0 })
	if got, want := seen(c), pausedStreams[0].want[:1]; !slices.Equal(got, want) {
		t.Errorf("the handler saw %q, want %q", got, want)
	}
	if n := f.server.Stats().Parks; n > 0 {
		t.Errorf("the connection was parked %d times, want never", n)
	}
}

// startSeeing starts a server. seen returns the requests of a client that its handler saw.
func startSeeing(t *testing.T, overTLS bool, opts ...Option) (f *fixture, seen func(*client) []string, dial func() *client) {
	var mu sync.Mutex
	requests := make(map[string][]string) // by address
	handler := func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s %s: reading the body: %v", r.Method, r.URL.Path, err)
		}
		what := fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, body)
		mu.Lock()
		requests[r.RemoteAddr] = append(requests[r.RemoteAddr], what)
		mu.Unlock()
		io.WriteString(rw, what)
	}
	seen = func(c *client) []string {
		mu.Lock()
		defer mu.Unlock()
		return requests[c.LocalAddr().String()]
	}
	if !overTLS {
		f = start(t, handler, nil, opts...)
		return f, seen, f.dial
	}
	f, config := startTLS(t, handler, nil, opts...)
	return f, seen, func() *client { return f.dialTLS(config) }
}
