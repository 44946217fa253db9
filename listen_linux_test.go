//go:build !percore_net

package percore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/testnet"
)

// opener listens with a configuration, either net.ListenConfig or ours.
type opener = testnet.ListenFunc

func openNet(network, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), network, address)
}

// abstractName returns an abstract unix address that no other run of the tests uses.
func abstractName(name string) string { return fmt.Sprintf("@percore-test-%s-%d", name, os.Getpid()) }

// TestReusePort makes two listeners share a port, as those of two processes do. Both get
// connections, and when one is closed the other gets all of them.
func TestReusePort(t *testing.T) {
	testnet.NoLeaks(t)
	address := "127.0.0.1:0"
	listeners := map[string]*Listener{}
	for _, name := range []string{"first", "second"} {
		ln := listen(t, ListenConfig{ReusePort: true, Group: newGroup(t, 2)}, "tcp4", address)
		go testnet.ServeName(ln, name)
		listeners[name], address = ln, ln.Addr().String()
	}
	ask := func() string {
		t.Helper()
		name, err := testnet.AskName(address)
		if err != nil {
			t.Fatalf("asking: %v", err)
		}
		return name
	}
	served := map[string]int{}
	for range 64 { // the chance that all go to one listener is 1 in 10^19
		served[ask()]++
	}
	if len(served) != 2 || served["first"] == 0 || served["second"] == 0 {
		t.Errorf("got connections served by %v, want both listeners", served)
	}
	listeners["first"].Close()
	for range 20 {
		if name := ask(); name != "second" {
			t.Errorf("after the first listener was closed: got %q, want second", name)
		}
	}
}

// TestControl counts the calls of the user's hook: one for each socket, before it
// is bound, with package net's arguments.
func TestControl(t *testing.T) {
	type call struct{ network, address string }
	const priority = 3 // for SO_PRIORITY: an option that identifies the sockets
	for _, test := range []struct {
		network, address string
		reusePort        bool
		sockets          int
	}{
		{"tcp", "127.0.0.1:0", false, 3},
		{"tcp", "127.0.0.1:0", true, 3},
		{"tcp4", "127.0.0.1:0", false, 3},
		{"tcp", ":0", false, 3},
		{"unix", abstractName("control"), false, 1},
		{"unix", abstractName("control"), true, 1},
	} {
		t.Run(fmt.Sprintf("%s %s %t", test.network, test.address, test.reusePort), func(t *testing.T) {
			testnet.NoLeaks(t)
			var calls []call
			control := func(network, address string, c syscall.RawConn) error {
				calls = append(calls, call{network, address})
				return c.Control(func(fd uintptr) {
					if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, priority); err != nil {
						t.Errorf("setsockopt: %v", err)
					}
				})
			}
			ask := func(address string) call {
				// Package net's arguments, which are decided before it binds.
				calls = nil
				asking := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
					control(network, address, c)
					return errors.New("enough")
				}}
				asking.Listen(t.Context(), test.network, address)
				return calls[0]
			}
			g := newGroup(t, test.sockets)
			want := []call{ask(test.address)}
			calls = nil
			ln := listen(t, ListenConfig{Control: control, ReusePort: test.reusePort, Group: g}, test.network, test.address)
			got := calls
			for range test.sockets - 1 { // the others are bound to the first one's port
				want = append(want, ask(ln.Addr().String()))
			}
			if !slices.Equal(got, want) {
				t.Errorf("got calls %v, want %v", got, want)
			}
			raw, err := ln.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			sockets := 0
			err = raw.Control(func(fd uintptr) {
				sockets++
				if got, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY); got != priority || err != nil {
					t.Errorf("socket %d: got priority %d, %v, want %d", sockets, got, err, priority)
				}
			})
			if err != nil || sockets != test.sockets {
				t.Errorf("SyscallConn: got %d sockets, %v, want %d", sockets, err, test.sockets)
			}
		})
	}
}

// TestControlFails makes the hook fail at the first socket, and at the second.
func TestControlFails(t *testing.T) {
	hookErr := errors.New("not today")
	for failing := range 3 {
		t.Run(fmt.Sprint(failing), func(t *testing.T) {
			testnet.NoLeaks(t)
			calls := 0
			control := func(string, string, syscall.RawConn) error {
				calls++
				if calls > failing {
					return hookErr
				}
				return nil
			}
			lc := ListenConfig{Control: control, Group: newGroup(t, 3)}
			ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err == nil {
				ln.Close()
			}
			wantErr(t, "Listen", err, "listen", hookErr)
			if err != nil && !strings.HasSuffix(err.Error(), ": not today") {
				t.Errorf("got %q, want it to end with the hook's error", err)
			}
			if strings.Count(fmt.Sprint(err), "listen") != 1 {
				t.Errorf("got %q, want the operation once", err)
			}
		})
	}
}

// TestControlPanics makes the hook panic, or end its goroutine, at a later socket: the first ones are
// closed, and the group can end.
func TestControlPanics(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("not today") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			address := ""
			control := func(_, at string, c syscall.RawConn) error {
				if strings.HasSuffix(at, ":0") {
					return nil
				}
				address = at
				return c.Control(func(fd uintptr) {
					defer unix.Close(int(fd)) // package net never does
					end()
				})
			}
			lc := ListenConfig{Control: control, Group: newGroup(t, 2)}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
			}()
			testnet.Receive(t, "the end of Listen", ended)
			ln, err := net.Listen("tcp4", address)
			if err != nil {
				t.Fatalf("the first socket was left: %v", err)
			}
			ln.Close()
		})
	}
}

// TestFileListenerRefuses: FileListener refuses what package net finds out in Accept, or serves.
// TestDiffFileListener has what both refuse.
func TestFileListenerRefuses(t *testing.T) {
	t.Run("a connection", func(t *testing.T) { // package net finds this out in Accept
		testnet.NoLeaks(t)
		_, c := testnet.Pair(t, net.Listen, testnet.TCP4)
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ln, err := FileListener(f)
		if err == nil {
			testnet.Within(t, "Accept", func() { _, err = ln.Accept() })
			ln.Close()
		}
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("got %v, want EINVAL", err)
		}
	})
	t.Run("a seqpacket socket", func(t *testing.T) {
		testnet.NoLeaks(t)
		nl, err := net.Listen("unixpacket", abstractName("seqpacket"))
		if err != nil {
			t.Fatal(err)
		}
		defer nl.Close()
		ln, err := FileListener(fileOf(t, nl))
		if err == nil {
			ln.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "net.FileListener") {
			t.Errorf("got %v, want an error that says what to use", err)
		}
	})
}

// TestFileListenerBlocking makes an inherited socket blocking, as package os does whenever it
// passes such a file to a process. Only Accept may block. The test runs in a process with one
// processor, which a system call hidden from the scheduler would keep.
func TestFileListenerBlocking(t *testing.T) {
	testnet.NoLeaks(t)
	child := testnet.StartChild(t, "accept on a blocking socket", "GOMAXPROCS=1")
	var out []byte
	testnet.Within(t, "serving", func() { out, _ = io.ReadAll(child.Stdout) })
	if err := child.Wait(); err != nil || string(out) != "served" {
		t.Errorf("got %q, %v, want served", out, err)
	}
}

func init() {
	children["accept on a blocking socket"] = func() {
		origin, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			exitChild("listening", err)
		}
		f, err := origin.(*net.TCPListener).File()
		if err != nil {
			exitChild("copying the socket", err)
		}
		defer f.Close()
		origin.Close()
		ln, err := FileListener(f)
		if err != nil {
			exitChild("FileListener", err)
		}
		go serveEcho(ln)
		var clients []net.Conn
		for i := range 4 {
			if i == 1 {
				f.Fd()
				if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
					exitChild("the socket did not become blocking", fmt.Errorf("flags %#x, %v", flags, err))
				}
			}
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				exitChild("dialing", err)
			}
			clients = append(clients, c)
			for _, c := range clients {
				if got, err := roundTrip(c, "hello"); got != "hello" || err != nil {
					exitChild("echo", fmt.Errorf("got %q, %v", got, err))
				}
			}
		}
		if err := ln.Close(); err != nil {
			exitChild("closing", err)
		}
		for _, c := range clients {
			c.Close()
		}
		os.Stdout.WriteString("served")
	}
}

// TestUnlink checks what happens to a unix socket's file, compared with package net.
func TestUnlink(t *testing.T) {
	type unixListener interface {
		net.Listener
		SetUnlinkOnClose(bool)
		File() (*os.File, error)
	}
	fileListeners := map[string]func(*os.File) (net.Listener, error){"net": net.FileListener, "percore": FileListener}
	openers := map[string]opener{"net": openNet, "percore": Listen}
	for _, test := range []struct {
		name string
		play func(t *testing.T, ln unixListener, inherit func(*os.File) unixListener)
		want bool // whether the file is left
	}{
		{"close", func(t *testing.T, ln unixListener, _ func(*os.File) unixListener) {
			ln.Close()
		}, false},
		{"close twice, another file between", func(t *testing.T, ln unixListener, _ func(*os.File) unixListener) {
			ln.Close()
			if err := os.WriteFile(ln.Addr().String(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			ln.Close()
		}, true},
		{"told not to", func(t *testing.T, ln unixListener, _ func(*os.File) unixListener) {
			ln.SetUnlinkOnClose(false)
			ln.Close()
		}, true},
		{"told not to, and then to", func(t *testing.T, ln unixListener, _ func(*os.File) unixListener) {
			ln.SetUnlinkOnClose(false)
			ln.SetUnlinkOnClose(true)
			ln.Close()
		}, false},
		{"inherited", func(t *testing.T, ln unixListener, inherit func(*os.File) unixListener) {
			f := fileOf(t, ln)
			os.WriteFile(ln.Addr().String(), nil, 0o600) // if it was removed
			inherit(f).Close()
		}, true},
		{"inherited, told to", func(t *testing.T, ln unixListener, inherit func(*os.File) unixListener) {
			f, err := ln.File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			heir := inherit(f)
			heir.SetUnlinkOnClose(true)
			ln.SetUnlinkOnClose(false)
			ln.Close()
			heir.Close()
		}, false},
		{"a directory in its place", func(t *testing.T, ln unixListener, _ func(*os.File) unixListener) {
			os.Remove(ln.Addr().String())
			if err := os.Mkdir(ln.Addr().String(), 0o700); err != nil {
				t.Fatal(err)
			}
			ln.Close()
		}, true},
		{"file gone before", func(t *testing.T, ln unixListener, _ func(*os.File) unixListener) {
			os.Remove(ln.Addr().String())
			if err := ln.Close(); err != nil {
				t.Errorf("Close: got %v, want nil", err)
			}
		}, false},
	} {
		for engine, open := range openers {
			t.Run(test.name+"/"+engine, func(t *testing.T) {
				testnet.NoLeaks(t)
				ln := testnet.Listen(t, open, testnet.Unix).(unixListener)
				test.play(t, ln, func(f *os.File) unixListener {
					heir, err := fileListeners[engine](f)
					if err != nil {
						t.Fatalf("FileListener: %v", err)
					}
					t.Cleanup(func() { heir.Close() })
					return heir.(unixListener)
				})
				_, err := os.Lstat(ln.Addr().String())
				if left := err == nil; left != test.want {
					t.Errorf("got file left %t, want %t", left, test.want)
				}
			})
		}
	}
}

// TestListenFailureKeepsSocketFile checks that a failed listen does not remove a file that belongs
// to others.
func TestListenFailureKeepsSocketFile(t *testing.T) {
	testnet.NoLeaks(t)
	g := newGroup(t, 1)
	ended := newGroup(t, 1)
	ended.Close()
	testnet.Receive(t, "the end of the group", ended.Stopped())

	ln := listen(t, ListenConfig{Group: g}, "unix", filepath.Join(testnet.ShortTempDir(t), "s"))
	path := ln.Addr().String()
	if other, err := Listen("unix", path); err == nil {
		other.Close()
		t.Error("listening on a path in use: got no error")
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the file of the socket in use: %v", err)
	}

	// A file with the name of an abstract socket does not belong to that socket.
	t.Chdir(testnet.ShortTempDir(t))
	abstract := abstractName("file")
	if err := os.WriteFile(abstract, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lc := ListenConfig{Group: ended}
	_, err := lc.Listen(t.Context(), "unix", abstract)
	wantErr(t, "Listen on an ended group", err, "listen", engine.ErrStopped)
	listen(t, ListenConfig{Group: g}, "unix", abstract).Close()
	if _, err := os.Lstat(abstract); err != nil {
		t.Errorf("a file called %q: %v", abstract, err)
	}

	// And a socket's own file is removed if Listen fails after creating it.
	path = filepath.Join(testnet.ShortTempDir(t), "s")
	_, err = lc.Listen(t.Context(), "unix", path)
	wantErr(t, "Listen on an ended group", err, "listen", engine.ErrStopped)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket file of a failed Listen: got %v, want it gone", err)
	}
}

// TestMultipathTCP checks that connections use MPTCP if, and only if, both sides were told to, whichever
// of them is ours. With MPTCP, which falls back to TCP, a short read must not be taken for the end of
// the data.
func TestMultipathTCP(t *testing.T) {
	for _, side := range []struct {
		name string
		pair func(t *testing.T, ours, theirs bool) (c *Conn, peer net.Conn)
	}{
		{"accepted", func(t *testing.T, ours, theirs bool) (*Conn, net.Conn) {
			lc := ListenConfig{Group: newGroup(t, 2)}
			lc.SetMultipathTCP(ours)
			if got := lc.MultipathTCP(); got != ours {
				t.Errorf("MultipathTCP of the configuration: got %t, want %t", got, ours)
			}
			ln := listen(t, lc, "tcp4", "127.0.0.1:0")
			next := goAccept(t, ln)
			var dialer net.Dialer
			dialer.SetMultipathTCP(theirs)
			peer, err := dialer.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { peer.Close() })
			return awaitConn(t, next).(*Conn), peer
		}},
		{"dialed", func(t *testing.T, ours, theirs bool) (*Conn, net.Conn) {
			var lc net.ListenConfig
			lc.SetMultipathTCP(theirs)
			ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
			d := Dialer{Group: newGroup(t, 1)}
			d.SetMultipathTCP(ours)
			return dialFrom(t, &d, ln)
		}},
	} {
		for _, test := range []struct{ ours, theirs bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
			t.Run(fmt.Sprintf("%s, ours %t, theirs %t", side.name, test.ours, test.theirs), func(t *testing.T) {
				testnet.NoLeaks(t)
				want := test.ours && test.theirs && kernelHasMPTCP(t)
				c, peer := side.pair(t, test.ours, test.theirs)
				for _, end := range []net.Conn{c, peer} {
					if got, err := end.(interface{ MultipathTCP() (bool, error) }).MultipathTCP(); got != want || err != nil {
						t.Errorf("a %T: got MPTCP %t, %v, want %t", end, got, err, want)
					}
				}
				if got := c.sock.options.kind; (got == engine.TCP) == (test.ours && kernelHasMPTCP(t)) {
					t.Errorf("got a stream of kind %d with MPTCP asked for: %t", got, test.ours)
				}
				wantEchoOf(t, c, peer)
			})
		}
	}
}

// kernelHasMPTCP reports whether package net can make an MPTCP connection here.
func kernelHasMPTCP(t *testing.T) bool {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var dialer net.Dialer
	dialer.SetMultipathTCP(true)
	c, err := dialer.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	has, err := c.(*net.TCPConn).MultipathTCP()
	if err != nil {
		t.Fatal(err)
	}
	return has
}

// TestDefaultGroup follows the loops that have no owner: they start with the
// first listener and end with the last listener and connection.
func TestDefaultGroup(t *testing.T) {
	testnet.NoLeaks(t)
	first := listen(t, ListenConfig{}, "tcp4", "127.0.0.1:0")
	group := first.listener.group
	second := listen(t, ListenConfig{}, "unix", abstractName("default-group"))
	if second.listener.group != group {
		t.Error("two listeners: got two groups, want one")
	}
	server, client := connect(t, first)
	running := func(what string) {
		t.Helper()
		select {
		case <-group.Stopped():
			t.Errorf("%s: the group has ended", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	first.Close()
	running("with a listener left")
	second.Close()
	running("with a connection left")
	go func() {
		io.Copy(server, server)
		server.Close()
	}()
	wantEcho(t, client, "hello")
	running("in use")
	client.Close()
	testnet.Receive(t, "the end of the group", group.Stopped())

	third := listen(t, ListenConfig{}, "tcp4", "127.0.0.1:0")
	if third.listener.group == group {
		t.Error("a new listener got the group that has ended")
	}
	go serveEcho(third)
	wantEcho(t, testnet.Dial(t, third), "hello again")
}

// TestDescriptorFlags checks every descriptor that listening and accepting open. A child process
// must not inherit it, and it must not block.
func TestDescriptorFlags(t *testing.T) {
	for _, kind := range testnet.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			testnet.NoLeaks(t)
			before := descriptors(t)
			ln := listenKindIn(t, ListenConfig{Group: newGroup(t, 2)}, kind)
			perLoop(t, ln)
			files, err := ln.Files()
			if err != nil {
				t.Fatal(err)
			}
			server, client := connect(t, ln)
			ours := 0
			for fd := range descriptors(t) {
				if before[fd] {
					continue
				}
				ours++
				wantFlags(t, fd)
			}
			// The loop in use, a socket and its copy, Accept's sets, and a
			// connection's two ends: it would be strange if there were fewer.
			if ours < 8 {
				t.Errorf("got %d descriptors, want at least 8", ours)
			}
			for _, f := range files {
				f.Close()
			}
			server.Close()
			client.Close()
		})
	}
}

// wantFlags fails the test if a child process inherits fd, or it blocks.
func wantFlags(t *testing.T, fd int) {
	t.Helper()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor %d: got flags %#x, %v, want FD_CLOEXEC", fd, flags, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("descriptor %d: got status %#x, %v, want O_NONBLOCK", fd, flags, err)
	}
}

// descriptors returns the numbers of the descriptors that are open.
func descriptors(t *testing.T) map[int]bool {
	t.Helper()
	open := map[int]bool{}
	for fd := range 1 << 12 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open[fd] = true
		}
	}
	return open
}

// The kernel gives the port to the first socket and refuses it to the next. Package net, which has
// only one socket, would listen.
func TestListenWithFewerSockets(t *testing.T) {
	testnet.NoLeaks(t)
	g := newGroup(t, 3)
	calls := 0
	lc := ListenConfig{Group: g, Control: func(string, string, syscall.RawConn) error {
		if calls++; calls == 3 {
			return syscall.EADDRINUSE // as if it came from bind
		}
		return nil
	}}
	nl, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("Listen: got %v, want a listener", err)
	}
	l := nl.(*Listener)
	defer l.Close()
	if got := l.Stats().Sockets; got != 2 {
		t.Errorf("got %d sockets, want 2", got)
	}
	split, err := l.PerLoop()
	if err != nil || len(split) != 2 {
		t.Fatalf("PerLoop: got %d listeners, %v, want 2, one for each socket", len(split), err)
	}
	accepted := acceptAll(append(split, l)...)
	for range 20 {
		peer := testnet.Dial(t, l)
		c := testnet.Receive(t, "Accept", accepted)
		if got, want := c.RemoteAddr().String(), peer.LocalAddr().String(); got != want {
			t.Errorf("accepted a connection from %s, want %s", got, want)
		}
		c.Close()
	}
	for _, from := range split {
		from.Close()
	}
}

// TestLowWaterMark makes the user's hook set SO_RCVLOWAT, below which the kernel reports nothing.
// It sets it on listening sockets, whose connections inherit it, and on sockets that will be
// connected. A read finds all available bytes, as with package net.
func TestLowWaterMark(t *testing.T) {
	hook := func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, 100)
		})
		return errors.Join(controlErr, err)
	}
	// Each returns a connection with the option, and its peer.
	pairs := map[string]func(t *testing.T) (c, peer net.Conn){
		"accepted, net": func(t *testing.T) (c, peer net.Conn) {
			return testnet.Pair(t, func(network, address string) (net.Listener, error) {
				return (&net.ListenConfig{Control: hook}).Listen(t.Context(), network, address)
			}, testnet.TCP4)
		},
		"accepted": func(t *testing.T) (c, peer net.Conn) {
			return connect(t, listen(t, ListenConfig{Control: hook, Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0"))
		},
		"accepted, set later": func(t *testing.T) (c, peer net.Conn) {
			ln := listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")
			raw, err := ln.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if err := hook("", "", raw); err != nil {
				t.Fatal(err)
			}
			return connect(t, ln)
		},
		"inherited": func(t *testing.T) (c, peer net.Conn) {
			lc := net.ListenConfig{Control: hook}
			lc.SetMultipathTCP(false)
			nl, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ln, err := (&ListenConfig{Group: newGroup(t, 2)}).FileListener(fileOf(t, nl))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ln.Close() })
			return connect(t, ln)
		},
		"dialed": func(t *testing.T) (c, peer net.Conn) {
			return dialFrom(t, &Dialer{Control: hook, Group: newGroup(t, 2)}, testnet.Listen(t, net.Listen, testnet.TCP4))
		},
	}
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			c, peer := pair(t)
			for range 2 {
				if _, err := io.WriteString(peer, "hello"); err != nil {
					t.Fatal(err)
				}
				raw, err := peer.(syscall.Conn).SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				testnet.Eventually(t, "the acknowledgement", func() (acked bool) {
					raw.Control(func(fd uintptr) {
						n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
						acked = n == 0 && err == nil
					})
					return acked
				})
				c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
				if n, err := c.Read(make([]byte, 10)); n != 5 || err != nil {
					t.Errorf("Read: got %d, %v, want the 5 bytes that are there", n, err)
				}
			}
		})
	}
}

// A file is not removed just because its name is a TCP listener's address.
func TestUnlinkOnCloseTCP(t *testing.T) {
	t.Chdir(t.TempDir())
	ln, err := Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	name := ln.Addr().String()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ln.(*Listener).SetUnlinkOnClose(true)
	ln.Close()
	if _, err := os.Stat(name); err != nil {
		t.Errorf("after Close: %v", err)
	}
}
