//go:build !percore_net

package handover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

func init() { children = append(children, testnet.WithChild("service", runService)) }

// runService runs a Service whose requests are answered with the process's pid, or how many processes
// there have been, and whose hijacked connections get a line when they are to end.
func runService() {
	generation := 0 // the state; set before requests come
	var conns Conns
	conns.Spread = time.Nanosecond
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getpid()) })
	mux.HandleFunc("/generation", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, generation) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		fmt.Fprintln(w, os.Getpid())
		http.NewResponseController(w).Flush()
		io.Copy(w, r.Body)
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			fail(err)
		}
		remove := conns.Add(func() { io.WriteString(c, "1001\n") })
		go func() {
			io.WriteString(c, "hijacked\n")
			io.Copy(io.Discard, rw)
			c.Close()
			remove()
		}()
	})
	web := httpadapter.Wrap(&http.Server{Handler: mux})
	s := Service{
		Parts: []Part{{
			Name: "web", Address: "127.0.0.1:0", Server: web,
			State: func() []byte { return fmt.Append(nil, generation) },
			Restore: func(state []byte) {
				before, _ := strconv.Atoi(string(state)) // 0 in the first process
				generation = before + 1
			},
		}},
		Restart:    syscall.SIGHUP,
		AnyParent:  true,
		Drain:      testnet.HangTimeout,
		Conns:      &conns,
		HandedOver: func(pid int) { fmt.Println("handed over to", pid) },
	}
	s.Ready = func(all []net.Listener) { fmt.Println("serves:", os.Getpid(), all[0].Addr()) }
	if err := s.Run(context.Background()); err != nil {
		fail(err)
	}
}

// SIGHUP replaces the process of a Service. Idle connections go on in the next one, a slow request and a
// hijacked connection end in their own, which the first SIGTERM doesn't end.
func TestServiceRestart(t *testing.T) {
	testnet.CatchSIGHUP()
	child := testnet.StartChild(t, "service")
	lines := bufio.NewScanner(child.Stdout)
	ended := false // both processes
	// scan reads count lines, which processes write in any order.
	scan := func(count int) (serves, named int) {
		t.Helper()
		for range count {
			if !lines.Scan() {
				t.Fatal("the processes have ended")
			}
			n, _ := fmt.Sscanf(lines.Text(), "serves: %d", &serves)
			m, _ := fmt.Sscanf(lines.Text(), "handed over to %d", &named)
			if n+m != 1 {
				t.Fatalf("got line %q", lines.Text())
			}
			if pid := max(serves, named); pid != child.PID() {
				t.Cleanup(func() {
					if !ended { // or waiting for the child's output would take forever
						syscall.Kill(pid, syscall.SIGKILL)
					}
				})
			}
		}
		return serves, named
	}
	first, _ := scan(1)
	_, address, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "serves: "), " ")

	type client struct {
		net.Conn
		*bufio.Reader
	}
	dial := func(request string) client {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		io.WriteString(c, request)
		return client{c, bufio.NewReader(c)}
	}
	line := func(c client) string {
		t.Helper()
		text, err := c.ReadString('\n')
		if err != nil {
			t.Fatalf("reading a line: got %q, %v", text, err)
		}
		return strings.TrimSpace(text)
	}
	get := func(c client, path string) string {
		t.Helper()
		fmt.Fprintf(c.Conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		resp, err := http.ReadResponse(c.Reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	pid := func(c client) string { return get(c, "/") }
	idle := dial("")
	if got, want := pid(idle), fmt.Sprint(first); got != want {
		t.Errorf("got process %s, want %s", got, want)
	}
	if got := get(idle, "/generation"); got != "1" {
		t.Errorf("got generation %s, want 1: there is no predecessor", got)
	}
	// Over HTTP/1.0 the answer's end is that of the connection.
	slow := dial("POST /slow HTTP/1.0\r\nContent-Length: 5\r\n\r\n")
	for line(slow) != "" { // the header
	}
	if got, want := line(slow), fmt.Sprint(first); got != want {
		t.Errorf("the slow request: got process %s, want %s", got, want)
	}
	hijacked := dial("GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := line(hijacked); got != "hijacked" {
		t.Errorf("the hijacked connection: got %q", got)
	}

	syscall.Kill(first, syscall.SIGHUP)
	second, named := scan(2)
	if named != second || second == first {
		t.Fatalf("process %d has handed over to %d, and %d serves", first, named, second)
	}
	io.WriteString(slow.Conn, "late\n")
	if got := line(slow); got != "late" {
		t.Errorf("the rest of the slow answer: got %q", got)
	}
	if got := line(hijacked); got != "1001" {
		t.Errorf("the hijacked connection: got %q, want 1001", got)
	}
	syscall.Kill(first, syscall.SIGTERM)
	if got, want := pid(idle), fmt.Sprint(second); got != want {
		t.Errorf("after the restart: got process %s, want %s", got, want)
	}
	if got := get(idle, "/generation"); got != "2" {
		t.Errorf("after the restart: got generation %s, want 2, from the predecessor's state", got)
	}
	hijacked.Conn.Close() // the predecessor has waited for that only
	syscall.Kill(second, syscall.SIGTERM)
	for lines.Scan() {
		t.Errorf("got line %q, want no more", lines.Text())
	}
	ended = true
	if err := child.Wait(); err != nil {
		t.Errorf("the first process: %v", err)
	}
}

// metric returns one of the package's metrics.
func metric(t *testing.T, name, result string) float64 {
	t.Helper()
	for _, f := range readMetrics() {
		if f.Name == name && f.Of == result {
			return f.Value
		}
	}
	t.Fatalf("there is no metric %s %s", name, result)
	return 0
}

// Each handover is counted by its result, once on each side.
func TestMetrics(t *testing.T) {
	for result, isGood := range map[string]bool{"moved": true, "failed": false} {
		t.Run(result, func(t *testing.T) {
			// Other tests have left handovers in the middle.
			under, gave, took := metric(t, "under_way", ""), metric(t, "given_total", result), metric(t, "taken_total", result)
			ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
			a, done := meet(t, serverOf("web", ln, nil))
			next := mustOpen(t, a, "web")
			defer next.Close()
			if got := metric(t, "under_way", "") - under; got != 2 {
				t.Errorf("got %v more handovers under way, want both sides of one", got)
			}
			if isGood {
				if err := a.ready(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}
			a.giveUp(errTest)
			if err := testnet.Receive(t, "give", done); (err == nil) != isGood {
				t.Errorf("give: got %v", err)
			}
			if g, k := metric(t, "given_total", result), metric(t, "taken_total", result); g != gave+1 || k != took+1 {
				t.Errorf("got %v more given and %v more taken, want one of each", g-gave, k-took)
			}
			if n, last := metric(t, "under_way", ""), metric(t, "last_duration_seconds", ""); n != under || last <= 0 {
				t.Errorf("got %v under way, want %v as before, and the last took %v s", n, under, last)
			}
		})
	}
}

// A successor whose Service can't run tells the predecessor why, which serves on.
func TestServiceDeclines(t *testing.T) {
	if !isSupported() {
		t.Skip("the engine is net")
	}
	c, theirs, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	fd, err := syscall.Dup(int(theirs.Fd())) // Run closes it
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, strconv.Itoa(fd))
	why := new(Service).Run(t.Context())
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	wantError(t, testnet.Receive(t, "give", goGive(t.Context(), c, serverOf("web", ln, nil))), why.Error())
}

// A Part's Listener keeps its options when it gets the predecessor's sockets, and one that has none to
// keep is an error.
func TestServiceListenerOptions(t *testing.T) {
	testnet.NoLeaks(t)
	predecessor := testnet.Listen(t, percore.Listen, testnet.TCP4)
	a, gave := meet(t, serverOf("web", predecessor, nil))
	own := Part{Name: "web", Listener: testnet.Listen(t, net.Listen, testnet.TCP4)}
	_, err := own.open(t.Context(), a.offer("web"), nil)
	wantError(t, err, "a *net.TCPListener")

	config := percore.ListenConfig{MaxConns: 7}
	if own.Listener, err = config.Listen(t.Context(), "tcp4", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	l, err := own.open(t.Context(), a.offer("web"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Addr().String() != predecessor.Addr().String() {
		t.Errorf("got a listener at %v, want %v", l.Addr(), predecessor.Addr())
	}
	if got := l.(*percore.Listener).Stats().MaxConns; got != config.MaxConns {
		t.Errorf("got a limit of %d, want %d", got, config.MaxConns)
	}
	if _, err := own.Listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: got %v, want a closed listener", err)
	}
	a.giveUp(errTest)
	wantError(t, testnet.Receive(t, "give", gave), errTest.Error())
}
