//go:build !percore_net

package handover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func init() {
	children = append(children,
		testnet.WithChild("successor", runSuccessor),
		testnet.WithChild("predecessor", runPredecessor),
	)
}

// serveEcho answers connections with the bytes that they send.
func serveEcho(t testing.TB, ln net.Listener) *testnet.Server {
	return testnet.Serve(t, ln, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// inChild is for serveEcho in a process that runs no test.
type inChild struct{ testing.TB }

func (inChild) Cleanup(func()) {}

// runSuccessor takes over the parent's listeners, echoes, and says when it is ready, and how that
// ended. It ends when its input does.
func runSuccessor() {
	a, err := inheritFrom(context.Background())
	if err == nil && a == nil {
		err = errors.New("nothing inherited")
	}
	if err != nil {
		fail(err)
	}
	for _, l := range a.listeners {
		ln, err := l.open(new(percore.ListenConfig).FileListeners)
		if err != nil {
			fail(err)
		}
		defer serveEcho(inChild{}, ln).End()
	}
	fmt.Println("ready:", a.ready(context.Background(), nil))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// startSuccessor starts a process, and returns the socket to it.
func startSuccessor(t *testing.T) (child *testnet.ChildProcess, c *net.UnixConn) {
	t.Helper()
	return startOther(t, "successor")
}

// startOther starts a helper process that inherits a socket.
func startOther(t *testing.T, name string, env ...string) (child *testnet.ChildProcess, c *net.UnixConn) {
	t.Helper()
	child = testnet.StartChildBy(t, name, func(cmd *exec.Cmd) (err error) {
		c, err = start(cmd)
		return err
	}, env...)
	return child, c
}

// newRealPredecessor returns a server with n connections. The others that it accepts echo.
func newRealPredecessor(t *testing.T, kind testnet.Kind, n int) *predecessor {
	t.Helper()
	p := &predecessor{ln: testnet.Listen(t, percore.Listen, kind), source: &fakeSource{batch: descriptorsMax}}
	for range n {
		server, client := testnet.Connect(t, p.ln)
		p.source.conns = append(p.source.conns, percore.WaitingConn{Conn: server, Served: true})
		p.clients = append(p.clients, client)
	}
	serveEcho(t, p.ln)
	return p
}

// mustEcho fails the test unless a server echoes.
func mustEcho(t *testing.T, client net.Conn) {
	t.Helper()
	if err := echo(client); err != nil {
		t.Fatal(err)
	}
}

// echo returns an error unless a server echoes.
func echo(client net.Conn) error {
	client.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := client.Write([]byte("hello")); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(client, buf); err != nil {
		return fmt.Errorf("reading: got %q, %w", buf, err)
	}
	if string(buf) != "hello" {
		return fmt.Errorf("reading: got %q", buf)
	}
	return nil
}

// TestProcess: a successor that is another process gets the listeners and connections, and leaves
// nothing behind when it ends, nor does this process; whose loops hear no more of the connections.
func TestProcess(t *testing.T) {
	for _, kind := range []testnet.Kind{testnet.TCP6, testnet.Unix} {
		t.Run(string(kind), func(t *testing.T) {
			testnet.NoLeaks(t)
			p, q := newRealPredecessor(t, kind, 300), newRealPredecessor(t, testnet.TCP4, 10)
			child, c := startSuccessor(t)
			if err := testnet.Receive(t, "give", goGive(t.Context(), c, p.server("a"), q.server("b"))); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(child.Stdout).ReadString('\n'); line != "ready: <nil>\n" {
				t.Fatalf("got %q, %v", line, err)
			}
			if n := percore.ReadStats().Conns; n != 0 {
				t.Errorf("got %d connections that this process has open, want none", n)
			}
			before := percore.ReadStats().Loops.Events
			for _, client := range append(p.clients, q.clients...) {
				mustEcho(t, client)
			}
			if n := percore.ReadStats().Loops.Events - before; n != 0 {
				t.Errorf("got %d events of connections that another process has, want none", n)
			}
			p.ln.Close()
			q.ln.Close()
			mustEcho(t, testnet.Dial(t, p.ln))
			mustEcho(t, testnet.Dial(t, q.ln))
			if err := child.Wait(); err != nil {
				t.Error(err)
			}
			if kind == testnet.Unix {
				if _, err := os.Stat(p.ln.Addr().String()); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the file of the unix socket: got %v, want the successor to have removed it", err)
				}
			}
		})
	}
}

// TestKilledSuccessor: a successor is killed at any moment. This process serves on, with all
// connections that were not committed.
func TestKilledSuccessor(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for i := range rounds {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			testnet.NoLeaks(t)
			p := newRealPredecessor(t, testnet.TCP4, 40)
			p.source.batch = 2
			child, c := startSuccessor(t)
			giveUp := p.source.left()*i/rounds - 1 // -1: before ready
			if giveUp < 0 {
				time.Sleep(rand.N(30 * time.Millisecond))
				child.Kill()
			}
			var kill sync.Once
			p.source.before = func(left int) {
				if len(p.clients)-left >= giveUp {
					kill.Do(func() { go child.Kill() })
				}
			}
			err := testnet.Receive(t, "give", goGive(t.Context(), c, p.server("web")))
			child.Kill()
			_ = child.Wait()
			if err == nil {
				if n := p.source.left(); n != 0 {
					t.Errorf("give has succeeded, and %d connections are left", n)
				}
				return // killed too late
			}
			wantError(t, err, "this process serves on")
			moved := len(p.clients) - p.source.left()
			for i, client := range p.clients {
				if i < moved {
					client.SetDeadline(time.Now().Add(testnet.HangTimeout))
					if n, err := client.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("connection %d, which was the successor's: got %d, %v, want an end", i, n, err)
					}
					continue
				}
				exchange(t, client, p.source.conns[i-moved].Conn)
			}
			mustEcho(t, testnet.Dial(t, p.ln))
			t.Logf("%d of %d had moved: %v", moved, len(p.clients), err)
		})
	}
}

// runPredecessor listens, accepts connections, and gives them to the process that has started it. It
// kills itself when a number of connections is left.
func runPredecessor() {
	c, err := inherited()
	if err != nil {
		fail(err)
	}
	ln, err := percore.Listen("unix", os.Getenv("LISTEN"))
	if err != nil {
		fail(err)
	}
	defer ln.Close()
	fmt.Println("listening")
	n, _ := strconv.Atoi(os.Getenv("CONNECTIONS"))
	killAt := -1
	fmt.Sscan(os.Getenv("KILL"), &killAt)
	self, _ := os.FindProcess(os.Getpid())
	from := &fakeSource{batch: 3, before: func(left int) {
		if left <= killAt {
			go self.Kill() // at this moment, or soon
		}
	}}
	if os.Getenv("BUSY") != "" {
		from.busy = make(chan struct{})
	}
	for range n {
		c, err := ln.Accept()
		if err != nil {
			fail(err)
		}
		from.conns = append(from.conns, percore.WaitingConn{Conn: c})
	}
	defer serveEcho(inChild{}, ln).End()
	fmt.Println("gave:", <-goGive(context.Background(), c, serverOf("web", ln, from)))
}

// otherPredecessor is a predecessor in another process.
type otherPredecessor struct {
	child   *testnet.ChildProcess
	out     *bufio.Reader
	wire    *net.UnixConn
	clients []net.Conn
}

// startPredecessor starts a predecessor with n connections at an address.
func startPredecessor(t *testing.T, address string, n int, env ...string) *otherPredecessor {
	t.Helper()
	p := new(otherPredecessor)
	p.child, p.wire = startOther(t, "predecessor", append(env, "LISTEN="+address, "CONNECTIONS="+strconv.Itoa(n))...)
	p.out = bufio.NewReader(p.child.Stdout)
	if line, err := p.out.ReadString('\n'); line != "listening\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	for range n {
		c, err := net.Dial("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		p.clients = append(p.clients, c)
	}
	return p
}

// TestPredecessorProcess: the predecessor is another process, which ends well, or is killed when a
// number of connections is left. The successor serves on, with all connections that were committed.
func TestPredecessorProcess(t *testing.T) {
	for _, killAt := range []int{-1, 0, 1, 30, 60} {
		t.Run(fmt.Sprint("kill at ", killAt), func(t *testing.T) {
			testnet.NoLeaks(t)
			address := filepath.Join(testnet.ShortTempDir(t), "s")
			const n = 60
			p := startPredecessor(t, address, n, "KILL="+strconv.Itoa(killAt))
			a, ln := mustTake(t, p.wire)
			s := serveEcho(t, ln)
			defer s.End()
			err := a.ready(t.Context(), nil)
			if killAt < 0 {
				if err != nil {
					t.Fatal(err)
				}
				if line, _ := p.out.ReadString('\n'); line != "gave: <nil>\n" {
					t.Errorf("got %q from the predecessor", line)
				}
				if err := p.child.Wait(); err != nil {
					t.Error(err)
				}
			} else {
				if err != nil && !errors.Is(err, errGone) {
					t.Errorf("got %v, want %v", err, errGone)
				}
				_ = p.child.Wait()
			}
			moved := 0 // the first of them; the others, which were the predecessor's, have ended
			for i, c := range p.clients {
				err := echo(c)
				switch {
				case err == nil && moved < i:
					t.Errorf("connection %d goes on, and connection %d has ended", i, moved)
				case err == nil:
					moved++
				case errors.Is(err, os.ErrDeadlineExceeded):
					t.Errorf("connection %d: got %v, want an echo or an end", i, err)
				}
			}
			if got := ln.(*percore.Listener).Stats().Adopted; got != uint64(moved) {
				t.Errorf("got %d connections adopted, and %d go on", got, moved)
			}
			if killAt <= 0 && moved != n {
				t.Errorf("got %d connections, want %d", moved, n)
			}
			mustEcho(t, testnet.Dial(t, ln))
			s.End()
			if _, err := os.Stat(address); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file of the unix socket: got %v, want this process to have removed it", err)
			}
		})
	}
}

// TestSuccessorDoesNotStart: start leaves nothing behind.
func TestSuccessorDoesNotStart(t *testing.T) {
	testnet.NoLeaks(t)
	if c, err := start(exec.Command(filepath.Join(t.TempDir(), "nothing"))); c != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got a socket %v, and %v", c, err)
	}
}

// TestInherited: the environment variable is looked at once, and another process' leftovers are not
// taken for a socket.
func TestInherited(t *testing.T) {
	testnet.NoLeaks(t)
	if c, err := inherited(); c != nil || err != nil {
		t.Errorf("without the variable: got %v, %v, want nil, nil", c, err)
	}
	file := testnet.TempFile(t, nil)
	for value, want := range map[string]string{
		"":                           `PERCORE_HANDOVER="" in the environment is no descriptor`,
		"x":                          "is no descriptor",
		"0":                          "is no descriptor",
		"-1":                         "is no descriptor",
		"1000000":                    "descriptor 1000000 is no socket of a predecessor's",
		strconv.Itoa(int(file.Fd())): "is no socket of a predecessor's",
	} {
		t.Setenv(variable, value)
		c, err := inherited()
		if c != nil {
			t.Errorf("%q: got a socket", value)
		}
		wantError(t, err, want)
		if c, err := inherited(); c != nil || err != nil {
			t.Errorf("the second time: got %v, %v, want nil, nil", c, err)
		}
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("the file that is not ours: %v", err)
	}
}

// TestOtherUser: a process takes nothing from a socket that another user has made.
func TestOtherUser(t *testing.T) {
	testnet.NoLeaks(t)
	c, theirs, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer theirs.Close()
	_, err = inherit(int(theirs.Fd()), os.Geteuid()+1)
	wantError(t, err, fmt.Sprintf("runs as user %d, and this process as user %d", os.Geteuid(), os.Geteuid()+1))
}

// TestMultipathTCP: connections of a Multipath TCP listener move, those of peers that don't know it too.
func TestMultipathTCP(t *testing.T) {
	testnet.NoLeaks(t)
	var lc percore.ListenConfig
	lc.SetMultipathTCP(true)
	ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := &predecessor{ln: ln, source: &fakeSource{batch: 10}}
	for _, multipath := range []bool{false, true} {
		var d net.Dialer
		d.SetMultipathTCP(multipath)
		client, err := d.Dial("tcp4", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		p.source.conns = append(p.source.conns, percore.WaitingConn{Conn: server})
		p.clients = append(p.clients, client)
	}
	defer serveEcho(t, ln).End()
	child, c := startSuccessor(t)
	if err := testnet.Receive(t, "give", goGive(t.Context(), c, p.server("web"))); err != nil {
		t.Fatal(err)
	}
	for _, client := range p.clients {
		mustEcho(t, client)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
