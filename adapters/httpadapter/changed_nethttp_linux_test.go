//go:build !percore_net

package httpadapter

import (
	"encoding/json"
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
	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// However net/http waits for a request, connections are parked correctly or not at all, and
// connections that wait without net/http are always parked correctly. TestChangedNetHTTP shows this
// with versions of net/http's server that each differ from this toolchain's in one small way. It
// copies server.go, puts all the changes into the copy, and builds this package's tests with it (go
// test -overlay). An environment variable selects the change, so net/http is compiled only once.
// The test binary then runs TestUnderChange once per change.

// changeVariable says which change is in effect, and probeVariable says that the probe is disabled.
const (
	changeVariable = "PERCORE_TEST_CHANGE"
	probeVariable  = "PERCORE_TEST_NO_PROBE"
)

// An edit replaces a piece of text that occurs once in net/http/server.go.
type edit struct{ old, new string }

// edits make server.go follow the environment. In their texts, change is net/http's copy of the
// variable.
var edits = []edit{
	{
		"import (\n",
		"import (\n\tchangeos \"os\"\n\tchangesyscall \"syscall\"\n",
	},
	{
		"// Serve a new connection.\nfunc (c *conn) serve(",
		"var change = changeos.Getenv(\"" + changeVariable + "\")\n" + waitWithoutBuffers + "\nfunc (c *conn) serve(",
	},
	{ // the end of a connection
		`
			c.close()
			c.setState(c.rwc, StateClosed, runHooks)
`, `
			if change == "StateClosed before Close" {
				c.setState(c.rwc, StateClosed, runHooks)
				c.close()
				return
			}
			if change != "no Close" {
				c.close()
			}
			c.setState(c.rwc, StateClosed, runHooks)
			if change == "a deadline after StateClosed" {
				c.rwc.SetReadDeadline(time.Now().Add(time.Millisecond))
			}
`,
	},
	{ // the end of a request
		`
		w.finishRequest()
		c.rwc.SetWriteDeadline(time.Time{})
`, `
		if change == "StateIdle before the answer" {
			c.setState(c.rwc, StateIdle, runHooks)
		}
		w.finishRequest()
		if change != "no end of the write deadline" {
			c.rwc.SetWriteDeadline(time.Time{})
		}
`,
	},
	{
		`
		c.setState(c.rwc, StateIdle, runHooks)
		c.curReq.Store(nil)
`, `
		if change != "StateIdle before the answer" {
			c.setState(c.rwc, StateIdle, runHooks)
		}
		c.curReq.Store(nil)
`,
	},
	{ // the wait for the next request
		`
		if d := c.server.idleTimeout(); d > 0 {
			c.rwc.SetReadDeadline(time.Now().Add(d))
		} else {
			c.rwc.SetReadDeadline(time.Time{})
		}

		// Wait for`, `
		if change != "1.28: no deadline before" {
			c.setWaitDeadline()
		}

		// Wait for`,
	},
	{
		`
		if _, err := c.bufr.Peek(4); err != nil {
			return
		}

		if d := c.server.readHeaderTimeout(); d > 0 {
			c.rwc.SetReadDeadline(time.Now().Add(d))
		} else {
			c.rwc.SetReadDeadline(time.Time{})
		}
`, `
		peek := 4
		switch change {
		case "peek of 1":
			peek = 1
		case "peek of 16":
			peek = 16
		case "two deadlines":
			c.rwc.SetReadDeadline(time.Time{})
		case "wait by SyscallConn":
			if sc, ok := c.rwc.(changesyscall.Conn); ok && c.bufr.Buffered() == 0 {
				if rc, err := sc.SyscallConn(); err == nil {
					var b [1]byte
					rc.Read(func(fd uintptr) bool {
						n, _, err := changesyscall.Recvfrom(int(fd), b[:], changesyscall.MSG_PEEK|changesyscall.MSG_DONTWAIT)
						return n >= 0 && err == nil || err != changesyscall.EAGAIN
					})
				}
			}
		case "bytes set aside":
			// Buffered bytes are kept elsewhere, and the wait is for more.
			if n := c.bufr.Buffered(); n > 0 && n < 4 {
				p, _ := c.bufr.Peek(n)
				aside := string(p)
				c.bufr.Discard(n)
				if _, err := c.bufr.Peek(1); err != nil {
					return
				}
				p, _ = c.bufr.Peek(c.bufr.Buffered())
				c.bufr = newBufioReader(io.MultiReader(strings.NewReader(aside+string(p)), c.r))
			}
		}
		if variant, ok := strings.CutPrefix(change, "1.28: "); ok && !c.waitWithoutBuffers(variant) {
			return
		}
		if _, err := c.bufr.Peek(peek); err != nil {
			switch change {
			case "an answer to the end":
				io.WriteString(c.rwc, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
			case "CloseWrite at the end":
				if tcp, ok := c.rwc.(closeWriter); ok {
					tcp.CloseWrite()
				}
			case "a read after the end":
				c.rwc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				io.Copy(io.Discard, c.rwc)
			}
			return
		}

		if d := c.server.readHeaderTimeout(); d > 0 {
			c.rwc.SetReadDeadline(time.Now().Add(d))
		} else if change != "one deadline" {
			c.rwc.SetReadDeadline(time.Time{})
		}
`,
	},
	{ // buffers
		`
	return bufio.NewReader(r)
`, `
	switch change {
	case "smaller buffers":
		return bufio.NewReaderSize(r, 2048)
	case "larger buffers":
		return bufio.NewReaderSize(r, 8192)
	}
	return bufio.NewReader(r)
`,
	},
	{
		`
	c.bufw = newBufioWriterSize(checkConnErrorWriter{c}, 4<<10)
`, `
	c.bufw = newBufioWriterSize(checkConnErrorWriter{c}, 4<<10)
	if change == "larger buffers for answers" {
		c.bufw = newBufioWriterSize(checkConnErrorWriter{c}, 16<<10)
	}
`,
	},
}

// waitWithoutBuffers has several variants of the wait of Go 1.28, which keeps no buffers: see
// https://go.dev/issue/80735.
const waitWithoutBuffers = `
func (c *conn) setWaitDeadline() {
	if d := c.server.idleTimeout(); d > 0 {
		c.rwc.SetReadDeadline(time.Now().Add(d))
	} else {
		c.rwc.SetReadDeadline(time.Time{})
	}
}

// waitWithoutBuffers returns when there are bytes of the next request, or false.
func (c *conn) waitWithoutBuffers(variant string) bool {
	timedOut := func(err error) bool {
		ne, ok := err.(net.Error)
		return ok && ne.Timeout()
	}
	short := 50 * time.Millisecond
	switch variant {
	case "5 ms":
		short = 5 * time.Millisecond
	case "300 ms":
		short = 300 * time.Millisecond
	}
	take := func(p []byte) { // bytes that were read without buffers
		c.bufr, c.bufw = newBufioReader(io.MultiReader(strings.NewReader(string(p)), c.r)), newBufioWriterSize(checkConnErrorWriter{c}, 4<<10)
	}
	if variant != "no short deadline" && variant != "a byte first" {
		c.rwc.SetReadDeadline(time.Now().Add(short))
		if _, err := c.bufr.Peek(4); !timedOut(err) {
			return err == nil
		}
	}
	c.r.lock()
	has := c.r.hasByte // which was read while the handler ran
	c.r.unlock()
	if has {
		_, err := c.bufr.Peek(4)
		return err == nil
	}
	if variant == "a byte first" && c.bufr.Buffered() == 0 {
		c.rwc.SetReadDeadline(time.Now().Add(short))
		var p [1]byte
		if n, err := c.rwc.Read(p[:]); n > 0 {
			c.setWaitDeadline() // else the rest of the request has less time than it may need
			take(p[:n])
			return true
		} else if !timedOut(err) {
			return false
		}
	}
	var aside []byte
	if n := c.bufr.Buffered(); variant == "bytes set aside" && n > 0 {
		p, _ := c.bufr.Peek(n)
		aside = append(aside, p...)
		c.bufr.Discard(n)
	}
	if variant != "short deadline kept" || c.bufr.Buffered() > 0 {
		c.setWaitDeadline()
	}
	switch variant {
	case "deadline set twice":
		c.setWaitDeadline()
	case "StateIdle again":
		c.setState(c.rwc, StateIdle, runHooks)
	}
	if variant == "buffers kept" || c.bufr.Buffered() > 0 {
		_, err := c.bufr.Peek(4)
		return err == nil
	}
	putBufioReader(c.bufr)
	putBufioWriter(c.bufw)
	c.bufr, c.bufw = nil, nil
	p := c.r.byteBuf[:]
	if variant == "two bytes" {
		p = make([]byte, 2)
	}
	n, err := c.rwc.Read(p)
	for variant == "short deadline kept" && n == 0 && timedOut(err) {
		c.rwc.SetReadDeadline(time.Now().Add(short))
		n, err = c.rwc.Read(p)
	}
	if n == 0 && err != nil {
		switch variant {
		case "an answer to the end":
			io.WriteString(c.rwc, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
		case "a read after the end":
			c.rwc.SetReadDeadline(time.Now().Add(short))
			io.Copy(io.Discard, c.rwc)
		}
		return false
	}
	if variant == "deadline after the byte" || variant == "short deadline kept" {
		c.setWaitDeadline()
	}
	if len(p) == 1 && len(aside) == 0 {
		c.r.lock()
		c.r.hasByte = true
		c.r.unlock()
		p = nil
	}
	take(append(aside, p[:min(n, len(p))]...))
	return true
}
`

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

	{"1.28: as announced", probe.Thrice},
	{"1.28: no deadline before", probe.Twice},
	{"1.28: 5 ms", probe.Thrice},
	{"1.28: 300 ms", probe.Thrice},
	{"1.28: bytes set aside", probe.Thrice}, // no connection that could be parked waits so
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
	// The go command keeps a toolchain that it has downloaded in the module cache, and accepts no
	// overlay for files there. With another name it does.
	goroot := filepath.Join(dir, "goroot")
	if err := os.Symlink(testnet.GoCommand(t, nil, "env", "GOROOT"), goroot); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(goroot, "src", "net", "http", "server.go")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	changed := string(text)
	for _, e := range edits {
		if n := strings.Count(changed, e.old); n != 1 {
			t.Fatalf("%s of %s has this text %d times, want once. net/http is another than the changes here are made for: "+
				"adapt them (the probe looks after users in the meantime).\n%s", name, runtime.Version(), n, e.old)
		}
		changed = strings.Replace(changed, e.old, e.new, 1)
	}
	copied, overlay := filepath.Join(dir, "server.go"), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {name: copied}})
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{copied: []byte(changed), overlay: replaced} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "changed.test")
	t.Setenv("GOROOT", goroot)
	testnet.GoCommand(t, nil, "test", "-c", "-overlay", overlay, "-o", binary, ".")
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
