//go:build !percore_net

package percore

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// load is a set of clients that connect, ask for their server's name, and disconnect, until they
// are stopped.
type load struct {
	t       *testing.T
	address string
	stopped atomic.Bool
	clients sync.WaitGroup

	mu struct {
		sync.Mutex
		served map[string]int // connections, by the name of the server
	}
}

func startLoad(t *testing.T, address string) *load {
	l := &load{t: t, address: address}
	l.mu.served = map[string]int{}
	for range 6 {
		l.clients.Go(l.client)
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.stopped.Store(true)
	l.clients.Wait()
}

func (l *load) client() {
	for !l.stopped.Load() {
		name, err := testnet.AskName(l.address)
		if err != nil {
			l.t.Errorf("a client: got %v, want to be served", err)
			return
		}
		l.mu.Lock()
		l.mu.served[name]++
		l.mu.Unlock()
	}
}

// awaitServer waits until a server with that name has had a few connections.
func (l *load) awaitServer(name string) {
	l.t.Helper()
	testnet.Eventually(l.t, "connections served by "+name, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.mu.served[name] >= 5 || l.t.Failed()
	})
}

// copyOf returns copies of ln's sockets, which are closed when the test ends.
func copyOf(t testing.TB, ln *Listener) []*os.File {
	t.Helper()
	files, err := ln.Files()
	if err != nil {
		t.Fatalf("Files: %v", err)
	}
	t.Cleanup(func() { closeAll(files) })
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// acceptFrom returns the listeners to call Accept on: ln, or one for each loop.
func acceptFrom(t testing.TB, ln *Listener, split bool) []*Listener {
	t.Helper()
	if !split {
		return []*Listener{ln}
	}
	return perLoop(t, ln)
}

// TestHandOver passes the sockets of a listener to a successor again and again, under load. The
// successor has as many loops as there are sockets, fewer, or more, and accepts with one goroutine
// or one per loop. No client may notice.
func TestHandOver(t *testing.T) {
	testnet.NoLeaks(t)
	const generations = 30
	groups := []*loop.Group{newGroup(t, 3), newGroup(t, 1), newGroup(t, 2), newGroup(t, 5)}
	ln := listen(t, ListenConfig{Group: groups[0]}, "tcp4", "127.0.0.1:0")
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { testnet.ServeName(ln, "0") })
	load := startLoad(t, ln.Addr().String())
	load.awaitServer("0")
	for generation := 1; generation <= generations; generation++ {
		name := strconv.Itoa(generation)
		files, err := ln.Files()
		if err != nil || len(files) != 3 {
			t.Fatalf("Files: got %d, %v, want 3", len(files), err)
		}
		lc := ListenConfig{Group: groups[generation%len(groups)]}
		heir, err := lc.FileListeners(files...)
		closeAll(files)
		if err != nil {
			t.Fatalf("FileListeners: %v", err)
		}
		t.Cleanup(func() { heir.Close() })
		for _, part := range acceptFrom(t, heir.(*Listener), generation%3 == 0) {
			serving.Go(func() { testnet.ServeName(part, name) })
		}
		if err := ln.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		load.awaitServer(name)
		ln = heir.(*Listener)
	}
	load.stop()
	ln.Close()
}

// TestFileListenersPlaceConnections makes listeners of three sockets on several
// numbers of loops, and connections, all of which must come out, on all loops.
func TestFileListenersPlaceConnections(t *testing.T) {
	const sockets = 3
	for _, loops := range []int{1, 2, 3, 4, 7} {
		for _, perLoop := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d loops, per loop %t", loops, perLoop), func(t *testing.T) {
				testnet.NoLeaks(t)
				group := newGroup(t, loops)
				old := listen(t, ListenConfig{Group: newGroup(t, sockets)}, "tcp4", "127.0.0.1:0")
				ln, err := (&ListenConfig{Group: group, LeastLoaded: true}).FileListeners(copyOf(t, old)...)
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				if got := ln.(*Listener).Stats().Sockets; got != sockets {
					t.Errorf("got %d sockets, want %d", got, sockets)
				}
				old.Close()

				const conns = 84
				var clients []net.Conn
				for range conns {
					clients = append(clients, testnet.Dial(t, ln))
				}
				servers := acceptAll(acceptFrom(t, ln.(*Listener), perLoop)...)
				for range clients {
					defer testnet.Receive(t, "Accept", servers).Close()
				}
				for i := range loops {
					if got := (*engine.Group)(group).Loop(i).Descriptors(); got < conns/loops/2 {
						t.Errorf("loop %d has %d connections of %d, want about %d", i, got, conns, conns/loops)
					}
				}
			})
		}
	}
}

// TestFileListenersMixed refuses sockets that can't be one listener.
func TestFileListenersMixed(t *testing.T) {
	tcp := func(t *testing.T) *os.File { return fileOf(t, testnet.Listen(t, openNet, testnet.TCP4)) }
	// An accepted connection has the listener's address.
	connection := func(t *testing.T) (listening, connected *os.File) {
		ln := testnet.Listen(t, openNet, testnet.TCP4)
		c, _ := testnet.Connect(t, ln)
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return fileOf(t, ln), f
	}
	for _, test := range []struct {
		name  string
		files func(t *testing.T) []*os.File
		want  string // in the error
	}{
		{"nothing", func(*testing.T) []*os.File { return nil }, "no files"},
		{"nil", func(*testing.T) []*os.File { return []*os.File{nil} }, "invalid argument"},
		{"a socket and nil", func(t *testing.T) []*os.File { return []*os.File{tcp(t), nil} }, "file 2 of 2 (nil): "},
		{"two addresses", func(t *testing.T) []*os.File {
			return []*os.File{tcp(t), tcp(t)}
		}, "file 2 of 2 (tcp4:127.0.0.1:"},
		{"two networks", func(t *testing.T) []*os.File {
			return []*os.File{tcp(t), fileOf(t, testnet.Listen(t, openNet, testnet.Unix))}
		}, "file 2 of 2 (unix:"},
		{"one socket twice", func(t *testing.T) []*os.File {
			ln := listen(t, ListenConfig{Group: newGroup(t, 1)}, "tcp4", "127.0.0.1:0")
			return append(copyOf(t, ln), copyOf(t, ln)...)
		}, "the same socket as file 1"},
		{"a connection first", func(t *testing.T) []*os.File {
			listening, connected := connection(t)
			return []*os.File{connected, listening}
		}, "file 1 of 2 (tcp4:127.0.0.1:"},
		{"a connection", func(t *testing.T) []*os.File {
			listening, connected := connection(t)
			return []*os.File{listening, connected}
		}, "file 2 of 2 (tcp4:127.0.0.1:"},
		{"Multipath TCP and TCP", func(t *testing.T) []*os.File {
			group := newGroup(t, 1)
			multipath := ListenConfig{ReusePort: true, Group: group}
			multipath.SetMultipathTCP(true)
			first := listen(t, multipath, "tcp4", "127.0.0.1:0")
			if first.listener.connOptions.kind == engine.TCP {
				t.Skip("this kernel has no Multipath TCP")
			}
			second := listen(t, ListenConfig{ReusePort: true, Group: group}, "tcp4", first.Addr().String())
			return append(copyOf(t, first), copyOf(t, second)...)
		}, "Multipath TCP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			ln, err := FileListeners(test.files(t)...)
			if err == nil {
				ln.Close()
			}
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "file" || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an OpError of %q that contains %q", err, "file", test.want)
			}
		})
	}
}

// TestFileListenersKeepsTheFiles: the caller keeps the files, and closing the listener closes
// neither them nor the sockets.
func TestFileListenersKeepsTheFiles(t *testing.T) {
	testnet.NoLeaks(t)
	old := listen(t, ListenConfig{Group: newGroup(t, 3)}, "tcp4", "127.0.0.1:0")
	files := copyOf(t, old)
	ln, err := FileListeners(files...)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	for range 8 {
		connect(t, old)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Errorf("closing a file: %v", err)
		}
	}
}

// TestCloseReportsLostSockets: some of the sockets have been passed on when the listener is closed.
func TestCloseReportsLostSockets(t *testing.T) {
	file := func(t *testing.T, ln *Listener) []*os.File {
		f, err := ln.File()
		if err != nil {
			t.Fatal(err)
		}
		return []*os.File{f}
	}
	files := func(t *testing.T, ln *Listener) []*os.File { return copyOf(t, ln) }
	for _, test := range []struct {
		name   string
		copies func(t *testing.T, ln *Listener) []*os.File // that are open when the listener is closed
		want   bool
	}{
		{"File", file, true},
		{"a copy of a descriptor", func(t *testing.T, ln *Listener) []*os.File { // as tableflip makes it
			raw, err := ln.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var last *os.File
			if err := raw.Control(func(fd uintptr) {
				if last != nil {
					last.Close()
				}
				copied, err := unix.Dup(int(fd))
				if err != nil {
					t.Error(err)
				}
				last = os.NewFile(uintptr(copied), "copy")
			}); err != nil {
				t.Fatal(err)
			}
			return []*os.File{last}
		}, true},
		{"Files", files, false},
		{"File and Files", func(t *testing.T, ln *Listener) []*os.File {
			return append(file(t, ln), files(t, ln)...)
		}, false},
		{"nothing", func(*testing.T, *Listener) []*os.File { return nil }, false},
		{"File, closed", func(t *testing.T, ln *Listener) []*os.File {
			closeAll(file(t, ln))
			return nil
		}, false},
		{"an option", func(t *testing.T, ln *Listener) []*os.File {
			raw, err := ln.SyscallConn()
			if err == nil {
				err = raw.Control(func(uintptr) {})
			}
			if err != nil {
				t.Fatal(err)
			}
			return nil
		}, false},
	} {
		for _, address := range []string{"tcp4 127.0.0.1:0", "tcp 127.0.0.1:0", "tcp :0", "tcp6 [::1]:0", "unix"} {
			t.Run(test.name+" "+address, func(t *testing.T) {
				network, address, _ := strings.Cut(address, " ")
				if network == "tcp6" && !testnet.HasIPv6() {
					t.Skip("this machine has no IPv6 loopback address")
				}
				if network == "unix" {
					address = abstractName("lost")
				}
				testnet.NoLeaks(t)
				text := captureLog(t)
				ln := listen(t, ListenConfig{Group: newGroup(t, 2)}, network, address)
				_, client := connect(t, ln) // is on the same port, and no reason
				defer client.Close()
				copies := test.copies(t, ln)
				ln.Close()
				want := test.want && network != "unix"
				if got := text.String(); strings.Contains(got, "FileListeners") != want || strings.Count(got, "\n") > 1 {
					t.Errorf("got log %q, want a line about lost sockets: %t", got, want)
				}
				closeAll(copies)
			})
		}
	}
}
