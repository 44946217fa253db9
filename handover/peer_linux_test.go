//go:build !percore_net

package handover

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func init() {
	children = append(children, testnet.WithChild("dialer", runDialer))
}

// listenAt listens at a name until the test ends, as a program does whose successor is started by
// another.
func listenAt(t *testing.T, name string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dialAt(name string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: name})
}

// runDialer dials a name, prints the error of Take, and ends when its input does.
func runDialer() {
	c, err := dialAt(os.Getenv("NAMED"))
	if err != nil {
		fail(err)
	}
	if os.Getenv("TAKE") == "" {
		fmt.Println("connected")
		_, _ = io.Copy(io.Discard, os.Stdin)
		c.Close()
		return
	}
	_, err = Take(context.Background(), c)
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// dialerIn starts a process in namespaces of its own that dials the name, and returns both ends.
func dialerIn(t *testing.T, namespaces uintptr, l *net.UnixListener, env ...string) (*testnet.ChildProcess, *net.UnixConn) {
	t.Helper()
	child := testnet.StartChildBy(t, "dialer", func(cmd *exec.Cmd) error {
		if namespaces == 0 {
			return cmd.Start()
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		}
		if err := cmd.Start(); err != nil {
			t.Skipf("a process in a namespace of its own: %v", err)
		}
		return nil
	}, env...)
	accepted := make(chan *net.UnixConn, 1)
	go func() {
		c, _ := l.AcceptUnix()
		accepted <- c
	}()
	c := testnet.Receive(t, "the connection", accepted)
	t.Cleanup(func() { c.Close() })
	return child, c
}

// firstLine returns what a process prints first.
func firstLine(t *testing.T, child *testnet.ChildProcess) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := child.Stdout.Read(buf)
	if err != nil {
		t.Fatalf("the process has printed nothing: %v, %s", err, child.Stderr())
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	return line
}

// TestPeerNamespaces: a process of the same user, in another mount or pid namespace, gets nothing
// by a named socket, whether it asks or is asked, and whatever kind of name. One in the same ones
// does.
func TestPeerNamespaces(t *testing.T) {
	for _, test := range []struct {
		name       string
		namespaces uintptr
		want       string // of both processes, or only of this one
	}{
		{"same", 0, ""},
		{"mount", syscall.CLONE_NEWNS, "is in another namespace (mnt)"},
		{"pid", syscall.CLONE_NEWPID, "namespace"},
		{"both", syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, "namespace"},
	} {
		for kind, name := range map[string]string{
			"path":     testnet.ShortTempDir(t) + "/control",
			"abstract": fmt.Sprintf("@percore-test-peer/%d/%s", os.Getpid(), test.name),
		} {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				testnet.NoLeaks(t)
				useFakes(t)
				l := listenAt(t, name)
				child, c := dialerIn(t, test.namespaces, l, "NAMED="+name)
				if line := firstLine(t, child); line != "connected" {
					t.Fatalf("got %q from the process", line)
				}
				p, err := checkPeer(c)
				if p.uid != os.Geteuid() || p.pid != child.PID() {
					t.Errorf("got %+v, want process %d", p, child.PID())
				}
				if test.want == "" {
					if err != nil {
						t.Error(err)
					}
				} else {
					wantError(t, err, test.want)
					q := newPredecessor(t, testnet.TCP4, 1)
					q.wantServesOn(t, Give(t.Context(), c, q.server("web")), "the socket: ", test.want)
					q.wantAll(t)
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
				if test.want == "" {
					return
				}
				child, c = dialerIn(t, test.namespaces, l, "NAMED="+name, "TAKE=1")
				if line := firstLine(t, child); !strings.Contains(line, "namespace") {
					t.Errorf("the successor: got %q, want an error about namespaces", line)
				}
				c.Close()
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestPeerEnded: a peer that has ended is refused, since its pid may be another's by now.
func TestPeerEnded(t *testing.T) {
	testnet.NoLeaks(t)
	name := testnet.ShortTempDir(t) + "/control"
	l := listenAt(t, name)
	child, c := dialerIn(t, 0, l, "NAMED="+name)
	child.Kill()
	_ = child.Wait()
	_, err := checkPeer(c)
	wantError(t, err, fmt.Sprintf("process %d at the other end", child.PID()))
}

// TestPairHasNoName: the sockets of Start are told from those that others can connect to.
func TestPairHasNoName(t *testing.T) {
	testnet.NoLeaks(t)
	name := func(c *net.UnixConn) (has bool) {
		t.Helper()
		if err := control(c, func(fd int) { has = hasName(fd) }); err != nil {
			t.Fatal(err)
		}
		return has
	}
	giving, taking := pair(t)
	if name(giving) || name(taking) {
		t.Error("a pair of sockets has a name")
	}
	for _, at := range []string{testnet.ShortTempDir(t) + "/control", fmt.Sprintf("@percore-test-name/%d", os.Getpid())} {
		l := listenAt(t, at)
		ours, err := dialAt(at)
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		theirs, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		if !name(ours) || !name(theirs) {
			t.Errorf("%s: a socket has no name", at)
		}
	}
}
