//go:build !percore_net

package percore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/testnet"
)

// accept accepts a connection from a client that it creates. Unlike connect it leaves no goroutine
// behind that holds the server's end.
func accept(t *testing.T, ln *Listener) (server *Conn, client net.Conn) {
	t.Helper()
	next := goAccept(t, ln)
	client = testnet.Dial(t, ln)
	return takeConn(t, next).(*Conn), client
}

// dial is accept for a connection that a Dialer makes.
func dial(t *testing.T, kind testnet.Kind) (dialed *Conn, peer net.Conn) {
	t.Helper()
	ln := testnet.Listen(t, net.Listen, kind)
	next := goAccept(t, ln)
	c, err := (&Dialer{Group: newGroup(t, 2)}).Dial(ln.Addr().Network(), ln.Addr().String())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	return c.(*Conn), awaitConn(t, next)
}

// collectGarbage runs the collector until done is closed.
func collectGarbage(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	testnet.Eventually(t, what, func() bool {
		runtime.GC()
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// ended is closed when c has read the end of the stream, or an error, which is reported.
func ended(t *testing.T, c net.Conn) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := awaitEnd(c); err != nil {
			t.Errorf("the client: got %v, want the end of the stream", err)
		}
	}()
	return done
}

// TestGarbage drops connections without closing them, after using them in ways that leave something
// behind. The collector must close them.
func TestGarbage(t *testing.T) {
	uses := map[string]func(t *testing.T, c *Conn, client net.Conn){
		"unused": func(*testing.T, *Conn, net.Conn) {},
		"read and written": func(t *testing.T, c *Conn, client net.Conn) {
			go io.WriteString(client, "hello")
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
				t.Error(err)
			}
			io.WriteString(c, "hello")
		},
		"deadlines": func(t *testing.T, c *Conn, client net.Conn) {
			c.SetDeadline(time.Now().Add(time.Hour))
		},
		"deadline passed": func(t *testing.T, c *Conn, client net.Conn) {
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read: got %v, want a timeout", err)
			}
		},
		"addresses": func(t *testing.T, c *Conn, client net.Conn) {
			c.LocalAddr()
			c.RemoteAddr()
		},
		"callback called": func(t *testing.T, c *Conn, client net.Conn) {
			called := make(chan error, 1)
			if err := c.OnReadable(func(err error) { called <- err }); err != nil {
				t.Error(err)
			}
			io.WriteString(client, "hello")
			testnet.Receive(t, "the callback", called)
			io.ReadFull(c, make([]byte, 5))
		},
		"callback canceled": func(t *testing.T, c *Conn, client net.Conn) {
			if err := c.OnReadable(func(error) { t.Error("a canceled callback was called") }); err != nil {
				t.Error(err)
			}
			if !c.CancelOnReadable() {
				t.Error("CancelOnReadable: got false, want true")
			}
		},
		"raw": func(t *testing.T, c *Conn, client net.Conn) {
			raw, err := c.SyscallConn()
			if err == nil {
				err = raw.Control(func(uintptr) {})
			}
			if err != nil {
				t.Error(err)
			}
		},
	}
	for name, use := range uses {
		for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				testnet.NoLeaks(t)
				ln := listenKindIn(t, ListenConfig{Group: newGroup(t, 2)}, kind)
				client := func() net.Conn {
					c, client := accept(t, ln)
					use(t, c, client)
					return client
				}()
				collectGarbage(t, "closing a connection that nobody holds", ended(t, client))
			})
		}
	}
	testnet.OnEachKind(t, func(t *testing.T, kind testnet.Kind) {
		peer := func() net.Conn {
			c, peer := dial(t, kind)
			uses["read and written"](t, c, peer)
			return peer
		}()
		collectGarbage(t, "closing a dialed connection that nobody holds", ended(t, peer))
	})
}

// TestNoGarbage checks that a connection is not garbage while a goroutine waits for it, even if
// nothing else refers to it.
func TestNoGarbage(t *testing.T) {
	waits := map[string]func(t *testing.T, c *Conn, done chan<- error){
		"Read": func(t *testing.T, c *Conn, done chan<- error) {
			go func() {
				_, err := c.Read(make([]byte, 1))
				done <- err
			}()
		},
		"WriteTo": func(t *testing.T, c *Conn, done chan<- error) {
			go func() {
				_, err := c.WriteTo(io.Discard)
				done <- err
			}()
		},
		"Write": func(t *testing.T, c *Conn, done chan<- error) {
			go func() {
				_, err := c.Write(make([]byte, 32<<20)) // more than the buffers hold
				done <- err
			}()
		},
		"RawConn": func(t *testing.T, c *Conn, done chan<- error) {
			raw, err := c.SyscallConn()
			if err != nil {
				t.Error(err)
			}
			go func() {
				tries := 0
				done <- raw.Read(func(uintptr) bool {
					tries++
					return tries > 1
				})
			}()
		},
		"OnReadable": func(t *testing.T, c *Conn, done chan<- error) {
			if err := c.OnReadable(func(err error) { done <- err }); err != nil {
				t.Error(err)
			}
		},
	}
	for name, wait := range waits {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			ln := listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")
			done := make(chan error, 1)
			client := func() net.Conn {
				c, client := accept(t, ln)
				wait(t, c, done)
				return client
			}()
			for range 10 {
				runtime.GC()
				time.Sleep(time.Millisecond) // for finalizers that the collector would start
			}
			if len(done) != 0 {
				t.Fatalf("got %v while nothing happened", <-done)
			}
			// Ends any of the waits.
			client.(*net.TCPConn).CloseWrite()
			go io.Copy(io.Discard, client)
			if err := testnet.Receive(t, name, done); err != nil && err != io.EOF {
				t.Errorf("got %v, want success or the end of the stream", err)
			}
			collectGarbage(t, "closing the connection afterwards", ended(t, client))
		})
	}
}

// TestGarbageListener drops a listener: it is closed, as in package net, and leaves ReadStats.
func TestGarbageListener(t *testing.T) {
	for _, split := range []bool{false, true} {
		t.Run(fmt.Sprintf("split=%t", split), func(t *testing.T) {
			testnet.NoLeaks(t)
			group := newGroup(t, 2)
			address := func() string {
				ln, err := (&ListenConfig{Group: group}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				if split {
					perLoop(t, ln.(*Listener))
				}
				go func() {
					if c, err := ln.Accept(); err == nil {
						c.Close()
					}
				}()
				c, err := net.Dial("tcp4", ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				awaitEnd(c)
				return ln.Addr().String()
			}()
			testnet.Eventually(t, "closing a listener that nobody holds", func() bool {
				runtime.GC()
				c, err := net.Dial("tcp4", address)
				if err == nil {
					c.Close()
				}
				listed := slices.ContainsFunc(ReadStats().Listeners, func(s ListenerStats) bool { return s.Address == address })
				return errors.Is(err, syscall.ECONNREFUSED) && !listed
			})
		})
	}
}

// TestGarbageListenerFile drops a listener on a unix socket whose file another program has
// replaced. The new file stays, as with package net.
func TestGarbageListenerFile(t *testing.T) {
	for name, open := range map[string]opener{"net": openNet, "percore": Listen} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			path := filepath.Join(testnet.ShortTempDir(t), "s")
			client := func() net.Conn {
				ln, err := open("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				runtime.KeepAlive(ln)
				return c
			}()
			defer client.Close()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				client.Read(make([]byte, 1)) // was in the backlog: reset
			}()
			collectGarbage(t, "closing a listener that nobody holds", closed)
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("the other file: %v", err)
			}
		})
	}
}

// TestNoGarbageListener keeps only a part of a listener: it stays open, as in package net.
func TestNoGarbageListener(t *testing.T) {
	collect := func() {
		for range 5 {
			runtime.GC()
			time.Sleep(time.Millisecond) // for the goroutines that the collector would start
		}
	}
	t.Run("SyscallConn", func(t *testing.T) {
		for name, open := range map[string]opener{"net": openNet, "percore": Listen} {
			t.Run(name, func(t *testing.T) {
				testnet.NoLeaks(t)
				raw := func() syscall.RawConn {
					ln, err := open("tcp4", "127.0.0.1:0")
					if err != nil {
						t.Fatal(err)
					}
					raw, err := ln.(syscall.Conn).SyscallConn()
					if err != nil {
						t.Fatal(err)
					}
					return raw
				}()
				collect()
				if err := raw.Control(func(uintptr) {}); err != nil {
					t.Errorf("Control: got %v, want nil", err)
				}
				raw = nil
				collect() // otherwise NoLeaks finds the sockets
			})
		}
	})
	t.Run("PerLoop", func(t *testing.T) {
		testnet.NoLeaks(t)
		group := newGroup(t, 1)
		sub := func() *Listener {
			ln, err := (&ListenConfig{Group: group}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return perLoop(t, ln.(*Listener))[0]
		}()
		collect()
		connect(t, sub)
		collect()
		connect(t, sub)
		sub.Close()
	})
}

// listenKindIn makes a listener of the given kind with lc's options.
func listenKindIn(t testing.TB, lc ListenConfig, kind testnet.Kind) *Listener {
	t.Helper()
	network, address := testnet.Address(t, kind)
	return listen(t, lc, network, address)
}

func init() {
	// Makes the descriptor of a connection blocking through its File, and then reads and writes
	// with deadlines. With a single processor, nothing else would run if a call blocked.
	children["blocking descriptor"] = func() {
		ln, err := Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			exitChild("listening", err)
		}
		client, err := net.Dial("tcp4", ln.Addr().String())
		if err != nil {
			exitChild("dialing", err)
		}
		c, err := ln.(*Listener).AcceptConn()
		if err != nil {
			exitChild("accepting", err)
		}
		f, err := c.File()
		if err != nil {
			exitChild("File", err)
		}
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			exitChild("the descriptor did not become blocking", fmt.Errorf("flags %#x, %v", flags, err))
		}
		b := make([]byte, 4<<20)
		for range 3 {
			c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
				exitChild("Read: want a timeout", fmt.Errorf("got %v", err))
			}
		}
		// Other goroutines run while it waits, and data gets through.
		ticks := 0
		ticking, stop := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ticking)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					if ticks++; ticks == 20 {
						io.WriteString(client, "hello")
					}
				}
			}
		}()
		c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		if n, err := c.Read(b); string(b[:n]) != "hello" {
			exitChild("Read: want hello", fmt.Errorf("got %q, %v", b[:n], err))
		}
		close(stop)
		<-ticking
		c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		for err == nil { // until the buffers are full
			_, err = c.Write(b)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			exitChild("Write: want a timeout", err)
		}
		f.Close()
		c.Close()
		client.Close()
		ln.Close()
		fmt.Print("done")
	}
}

// TestBlockingDescriptor checks that a user who makes the descriptor blocking
// doesn't make the engine block.
func TestBlockingDescriptor(t *testing.T) {
	testnet.NoLeaks(t)
	child := testnet.StartChild(t, "blocking descriptor", "GOMAXPROCS=1")
	var out []byte
	testnet.Within(t, "reading with deadlines", func() { out, _ = io.ReadAll(child.Stdout) })
	if err := child.Wait(); err != nil || string(out) != "done" {
		t.Errorf("got %q, %v, want done", out, err)
	}
}

func init() {
	// Opens as many connections as the environment says, and holds them until its standard input ends.
	children["dial many"] = func() {
		n, err := strconv.Atoi(os.Getenv("CONNECTIONS"))
		if err != nil {
			exitChild("CONNECTIONS", err)
		}
		conns := make([]net.Conn, n)
		for i := range conns {
			if conns[i], err = net.Dial("tcp4", os.Getenv("ADDRESS")); err != nil {
				exitChild(fmt.Sprintf("connection %d", i), err)
			}
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		for _, c := range conns {
			c.Close()
		}
	}
}

// TestIdleConnBudget measures the memory of a connection that no goroutine reads.
func TestIdleConnBudget(t *testing.T) {
	testnet.NoLeaks(t)
	const connections, heapBytesMax = 2000, 260
	ln := listen(t, ListenConfig{Group: newGroup(t, 1)}, "tcp4", "127.0.0.1:0")
	child := testnet.StartChild(t, "dial many", "ADDRESS="+ln.Addr().String(), "CONNECTIONS="+strconv.Itoa(connections))
	wantIdleBudget(t, connections, heapBytesMax, child, bufio.NewReader(child.Stdout), ln.AcceptConn)
}

// wantIdleBudget opens connections to or from the child, which reports that it is ready once it has
// them all. It checks that a waiting connection takes at most the given number of heap bytes, and
// no goroutine.
func wantIdleBudget(t *testing.T, connections int, heapBytesMax float64, child *testnet.ChildProcess, out *bufio.Reader, open func() (*Conn, error)) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(connections)+200 {
		t.Skipf("needs %d open files, may have %d (%v)", connections+200, limit.Cur, err)
	}
	conns := make([]*Conn, 0, connections)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	goroutines, before := runtime.NumGoroutine(), testnet.HeapBytes()
	for len(conns) < connections {
		c, err := open()
		if err != nil {
			t.Fatalf("connection %d: %v", len(conns), err)
		}
		conns = append(conns, c)
	}
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the other side: got %q, %v, want it ready", line, err)
	}
	each := float64(int64(testnet.HeapBytes()-before)) / float64(connections)
	t.Logf("%.0f bytes of heap per connection", each)
	if each > heapBytesMax {
		t.Errorf("got %.0f bytes of heap per connection, want at most %.0f", each, heapBytesMax)
	}
	// After a collection a runtime goroutine may call finalizers for a while.
	testnet.Eventually(t, "as few goroutines as without connections", func() bool { return runtime.NumGoroutine() <= goroutines })
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// startEcho sends c's bytes back until c ends, and then closes the channel. It allocates nothing
// per message.
func startEcho(c net.Conn) (ended <-chan struct{}) {
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			c.Write(b[:n])
		}
	}()
	return echoed
}

// TestAllocs checks that the calls a server makes for each request allocate nothing.
func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's sync.Pool allocates: run it without -race")
	}
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		t.Run(string(kind), func(t *testing.T) {
			testnet.NoLeaks(t)
			c, client := connect(t, listenKindIn(t, ListenConfig{Group: newGroup(t, 1)}, kind))
			echoed := startEcho(client)
			b := make([]byte, 64)
			count := func(what string, f func() error) {
				t.Helper()
				var failed error
				if n := testing.AllocsPerRun(200, func() {
					if err := f(); err != nil {
						failed = err
					}
				}); n != 0 || failed != nil {
					t.Errorf("%s: got %v allocations, %v, want none", what, n, failed)
				}
			}
			count("Write and Read that waits", func() error {
				if _, err := c.Write(b); err != nil {
					return err
				}
				_, err := io.ReadFull(c, b)
				return err
			})
			for what, set := range map[string]func(time.Time) error{
				"SetDeadline": c.SetDeadline, "SetReadDeadline": c.SetReadDeadline, "SetWriteDeadline": c.SetWriteDeadline,
			} {
				soon := time.Now().Add(time.Hour)
				count(what+", later and earlier each time, in the past, off", func() error {
					soon = soon.Add(time.Second)
					return errors.Join(set(soon), set(soon.Add(-time.Minute)), set(time.Unix(1, 0)), set(time.Time{}))
				})
			}
			count("RemoteAddr and LocalAddr", func() error {
				c.RemoteAddr()
				c.LocalAddr()
				return nil
			})
			c.Close()
			testnet.Receive(t, "the end of the echo", echoed)
		})
	}
}

// TestAtEnd: an end of the peer's writing, or a reset, is reported once no byte comes before it.
// Reading finds it afterwards.
func TestAtEnd(t *testing.T) {
	for _, kind := range testnet.Kinds() {
		for _, reset := range []bool{false, true} {
			if reset && !kind.IsTCP() {
				continue // unix sockets have no resets
			}
			t.Run(fmt.Sprintf("%s/reset=%t", kind, reset), func(t *testing.T) {
				server, client := accept(t, listenKindIn(t, ListenConfig{}, kind))
				defer server.Close()
				if seam.AtEnd(server) {
					t.Error("open: got the end")
				}
				if !reset {
					if _, err := client.Write([]byte("last")); err != nil {
						t.Fatal(err)
					}
				} else if err := client.(*net.TCPConn).SetLinger(0); err != nil {
					t.Fatal(err)
				}
				client.Close()
				if !reset {
					if seam.AtEnd(server) {
						t.Error("with bytes before it: got the end")
					}
					if _, err := io.ReadFull(server, make([]byte, len("last"))); err != nil {
						t.Fatal(err)
					}
				}
				testnet.Eventually(t, "the end", func() bool {
					called := make(chan error, 1) // otherwise the loop does not poll it
					if err := server.OnReadable(func(err error) { called <- err }); err != nil {
						t.Fatal(err)
					}
					testnet.Receive(t, "the callback", called)
					return seam.AtEnd(server)
				})
				if n, err := server.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("Read: got %d, %v, want the end", n, err)
				}
				server.Close()
				if seam.AtEnd(server) {
					t.Error("closed: got the end")
				}
			})
		}
	}
}

// TestClosingOnce: of two calls of Close that run at the same time one reports the connection's end to
// seam.Closing.
func TestClosingOnce(t *testing.T) {
	testnet.NoLeaks(t)
	c, client := accept(t, listen(t, ListenConfig{}, "tcp4", "127.0.0.1:0"))
	defer client.Close()
	var begun sync.WaitGroup
	begun.Add(2)
	var ends atomic.Int32
	closing := func(of net.Conn) (closed func()) {
		if of != net.Conn(c) {
			return nil
		}
		begun.Done()
		begun.Wait() // so that neither has closed it yet
		return func() { ends.Add(1) }
	}
	seam.Closing.Store(&closing)
	defer seam.Closing.Store(nil)
	var closers sync.WaitGroup
	for range 2 {
		closers.Go(func() { c.Close() })
	}
	closers.Wait()
	if n := ends.Load(); n != 1 {
		t.Errorf("got %d ends of one connection", n)
	}
}
