//go:build !percore_net

package handover

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// notifications is the part of systemd that a service reports to.
type notifications struct {
	t *testing.T
	c *net.UnixConn
}

func (n notifications) next() string {
	n.t.Helper()
	var p [4096]byte
	size, err := n.c.Read(p[:])
	if err != nil {
		n.t.Fatal(err)
	}
	return string(p[:size])
}

// await returns the next message that is not for the watchdog alone.
func (n notifications) await() string {
	n.t.Helper()
	for {
		if m := n.next(); m != "WATCHDOG=1" {
			return m
		}
	}
}

func (n notifications) want(prefix string) {
	n.t.Helper()
	if got := n.await(); !strings.HasPrefix(got, prefix) {
		n.t.Fatalf("got message %q, want %q", got, prefix)
	}
}

func (n notifications) wantPing() {
	n.t.Helper()
	if got := n.next(); got != "WATCHDOG=1" {
		n.t.Fatalf("got message %q, want one for the watchdog", got)
	}
}

// A Service that systemd starts takes its sockets, reports what it does, and serves the watchdog; so
// does its successor.
func TestServiceUnderSystemd(t *testing.T) {
	for _, name := range []string{"web", "percore.socket"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "notify")
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
			systemd := notifications{t, c}
			l := testnet.Listen(t, net.Listen, testnet.TCP4)
			socket, err := l.(*net.TCPListener).File()
			if err != nil {
				t.Fatal(err)
			}
			defer socket.Close()
			testnet.CatchSIGHUP()
			child := testnet.StartChildBy(t, "service", func(cmd *exec.Cmd) error {
				// Only the process itself knows its pid before it runs.
				cmd.Args = append([]string{"sh", "-c", `export LISTEN_PID=$$; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
				cmd.Path = "/bin/sh"
				cmd.ExtraFiles = []*os.File{socket}
				return cmd.Start()
			}, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=50000", "LISTEN_FDS=1", "LISTEN_FDNAMES="+name)
			mustServe := func() {
				t.Helper()
				if _, err := get(l.Addr().String(), "/"); err != nil {
					t.Fatal(err)
				}
			}
			lines := bufio.NewScanner(child.Stdout)
			if want := fmt.Sprintf("serves: %d %v", child.PID(), l.Addr()); !lines.Scan() || lines.Text() != want {
				t.Fatalf("got line %q, want %q", lines.Text(), want)
			}
			systemd.want("READY=1")
			systemd.wantPing()
			mustServe()

			syscall.Kill(child.PID(), syscall.SIGHUP)
			systemd.want("RELOADING=1\nMONOTONIC_USEC=")
			var second int
			message := systemd.await()
			if n, _ := fmt.Sscanf(message, "MAINPID=%d\n", &second); n != 1 || !strings.HasSuffix(message, "READY=1\nWATCHDOG=1") {
				t.Fatalf("got message %q, want the pid of a successor", message)
			}
			t.Cleanup(func() { syscall.Kill(second, syscall.SIGKILL) }) // the child's output would be open
			systemd.wantPing()
			mustServe()
			syscall.Kill(second, syscall.SIGTERM)
			systemd.want("STOPPING=1\nEXTEND_TIMEOUT_USEC=")
		})
	}
}
