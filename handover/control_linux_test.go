//go:build !percore_net

package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// mustListen is Listen until the test ends.
func mustListen(t *testing.T, name string) *Control {
	t.Helper()
	c, err := Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// mustReach fails the test unless Dial reaches c.
func mustReach(t *testing.T, name string, c *Control) {
	t.Helper()
	accepted := make(chan error, 1)
	go func() {
		theirs, err := c.Accept()
		if err == nil {
			_, err = CheckPeer(theirs)
			theirs.Close()
		}
		accepted <- err
	}()
	ours, err := Dial(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if p, err := CheckPeer(ours); err != nil || p != (Peer{os.Getpid(), os.Geteuid()}) {
		t.Errorf("the listener as Dial's peer: got %+v, %v", p, err)
	}
	if err := testnet.Receive(t, "Accept", accepted); err != nil {
		t.Error(err)
	}
}

// TestControl: a named socket is closed to others, passes from a predecessor to its successor
// without a moment at which none listens, and is removed by the last. Its path may be longer than a
// unix socket's.
func TestControl(t *testing.T) {
	testnet.NoLeaks(t)
	name := filepath.Join(t.TempDir(), strings.Repeat("long", 50), "control")
	if err := os.Mkdir(filepath.Dir(filepath.Dir(name)), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	first := mustListen(t, name)
	for path, want := range map[string]fs.FileMode{filepath.Dir(name): fs.ModeDir | 0o700, name: fs.ModeSocket | 0o600} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	mustReach(t, name, first)
	second := mustListen(t, name)
	mustReach(t, name, second)
	first.Close()
	first.Close()
	mustReach(t, name, second)
	if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: got %v, want %v", err, net.ErrClosed)
	}
	second.Close()
	if _, err := Dial(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Dial after Close: got %v, want %v", err, fs.ErrNotExist)
	}
	if left, err := os.ReadDir(filepath.Dir(name)); len(left) > 0 || err != nil {
		t.Errorf("got %v, %v in the folder, want nothing", left, err)
	}
}

// TestControlChanges: whatever the order in which processes come and go, the last one's name stays
// until it goes.
func TestControlChanges(t *testing.T) {
	testnet.NoLeaks(t)
	name := filepath.Join(t.TempDir(), "sockets", "control")
	previous := mustListen(t, name)
	for range 50 {
		next := mustListen(t, name)
		var closing sync.WaitGroup
		closing.Go(func() { previous.Close() })
		if c, err := Dial(name); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		last := mustListen(t, name)
		closing.Wait()
		next.Close()
		mustReach(t, name, last)
		previous = last
	}
}

// TestControlLeftBehind: the name of a process that was killed is taken.
func TestControlLeftBehind(t *testing.T) {
	testnet.NoLeaks(t)
	name := filepath.Join(t.TempDir(), "sockets", "control")
	mustListen(t, name).listener.Close() // without the file
	if _, err := Dial(name); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial: got %v, want %v", err, syscall.ECONNREFUSED)
	}
	mustReach(t, name, mustListen(t, name))
}

// TestControlFolder: neither side uses a folder into which others can reach.
func TestControlFolder(t *testing.T) {
	testnet.NoLeaks(t)
	folder := filepath.Join(t.TempDir(), "sockets")
	name := filepath.Join(folder, "control")
	for _, test := range []struct {
		name    string
		prepare func() error
		want    string
	}{
		{"open to others", func() error { return errors.Join(os.Mkdir(folder, 0o755), os.Chmod(folder, 0o755)) }, "open to others (mode 0755): make it 0700"},
		{"a link", func() error {
			return errors.Join(os.Mkdir(folder+".real", 0o700), os.Symlink(folder+".real", folder))
		}, "its folder is a symbolic link"},
		{"a file", func() error { return os.WriteFile(folder, nil, 0o600) }, "its folder is a symbolic link, or no folder"},
		{"another user's", func() error {
			if os.Geteuid() != 0 {
				t.Log("to give a folder away takes root")
				return errors.Join(os.Mkdir(folder, 0o777), os.Chmod(folder, 0o777))
			}
			return errors.Join(os.Mkdir(folder, 0o700), os.Chown(folder, 65534, 65534))
		}, "its folder "},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.prepare(); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(folder)
			_, err := Listen(name)
			wantError(t, err, "handover: listening at "+name+": ", test.want)
			_, err = Dial(name)
			wantError(t, err, "handover: connecting to "+name+": ", test.want)
		})
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Listen(name)
	wantError(t, err, "something else than a socket")
	if got, err := os.ReadFile(name); string(got) != "precious" || err != nil {
		t.Errorf("the file that was there: got %q, %v", got, err)
	}
}

// TestControlAbstract: an abstract name works, and is one process's at a time.
func TestControlAbstract(t *testing.T) {
	testnet.NoLeaks(t)
	name := fmt.Sprintf("@percore-test-control/%d", os.Getpid())
	c := mustListen(t, name)
	mustReach(t, name, c)
	if _, err := Listen(name); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the second Listen: got %v, want %v", err, syscall.EADDRINUSE)
	}
	c.Close()
	mustReach(t, name, mustListen(t, name))
}
