//go:build !percore_net

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// supervisor is the part of systemd that a service notifies. It hears the main process only, as with
// NotifyAccess=main.
type supervisor struct {
	conn *net.UnixConn
	done sync.WaitGroup

	mu    sync.Mutex
	main  int // the main process; 0: the first that speaks
	heard []notification
	pings int // of the main process, for the watchdog
}

type notification struct {
	pid     int
	isMain  bool
	message string // without the time
	usec    int64  // the time
	extend  int64  // of EXTEND_TIMEOUT_USEC
}

// newSupervisor listens at a path, or at an abstract name, and has $NOTIFY_SOCKET say so.
func newSupervisor(t *testing.T, isAbstract bool) *supervisor {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	if isAbstract {
		name = fmt.Sprintf("@percore-test-notify/%d/%s", os.Getpid(), t.Name())
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	rc, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ctlErr := rc.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1) })
	if err := errors.Join(ctlErr, err); err != nil {
		t.Fatal(err)
	}
	s := &supervisor{conn: conn}
	s.done.Go(func() {
		for s.hear() {
		}
	})
	t.Cleanup(func() {
		conn.Close()
		s.done.Wait()
	})
	t.Setenv("NOTIFY_SOCKET", name)
	return s
}

// hear receives a message.
func (s *supervisor) hear() bool {
	var p, oob [4096]byte
	n, oobn, _, _, err := s.conn.ReadMsgUnix(p[:], oob[:])
	if err != nil {
		return false
	}
	var cred *syscall.Ucred
	if messages, err := syscall.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) == 1 {
		cred, _ = syscall.ParseUnixCredentials(&messages[0])
	}
	if cred == nil {
		cred = new(syscall.Ucred)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.main == 0 {
		s.main = int(cred.Pid)
	}
	heard := notification{pid: int(cred.Pid), isMain: int(cred.Pid) == s.main}
	var lines []string
	for line := range strings.Lines(string(p[:n])) {
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, "=")
		number, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "MONOTONIC_USEC":
			heard.usec = number
			continue
		case "EXTEND_TIMEOUT_USEC":
			heard.extend = number
			continue
		case "WATCHDOG":
			if heard.isMain {
				s.pings++
			}
			continue
		case "MAINPID":
			if heard.isMain {
				s.main = int(number)
			}
		}
		lines = append(lines, line)
	}
	if heard.message = strings.Join(lines, " "); heard.message != "" {
		s.heard = append(s.heard, heard)
	}
	return true
}

// await waits for as many messages as are wanted, compares them, and forgets them. All are of the main
// process, with that pid.
func (s *supervisor) await(t *testing.T, pid int, want ...string) {
	t.Helper()
	testnet.Eventually(t, fmt.Sprintf("messages %q", want), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.heard) >= len(want)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []string
	for _, h := range s.heard {
		got = append(got, h.message)
		if h.pid != pid || !h.isMain {
			t.Errorf("process %d sent %q (main process: %t), want it from process %d", h.pid, h.message, h.isMain, pid)
		}
		if isStop := h.message == "STOPPING=1"; isStop != (h.extend > 0) {
			t.Errorf("message %q extends the time by %d", h.message, h.extend)
		}
		if isReload := h.message == "RELOADING=1"; isReload != (h.usec > 0) {
			t.Errorf("message %q has the time %d", h.message, h.usec)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got messages %q, want %q", got, want)
	}
	s.heard = nil
}

// awaitPings waits until the main process has told the watchdog three times that it works. The first may
// be the end of a handover.
func (s *supervisor) awaitPings(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	s.pings = 0
	s.mu.Unlock()
	testnet.Eventually(t, "messages for the watchdog", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.pings >= 3
	})
}

// mainPID is the service's process.
func (s *supervisor) mainPID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.main
}

// A service manager follows the service from process to process, and hears of nothing but the service.
func TestServeNotifies(t *testing.T) {
	for name, isAbstract := range map[string]bool{"file": false, "abstract": true} {
		t.Run(name, func(t *testing.T) {
			systemd := newSupervisor(t, isAbstract)
			g := startGenerations(t)
			systemd.await(t, g.pid, "READY=1")
			for range 2 {
				old := g.pid
				g.restart()
				systemd.await(t, old, "RELOADING=1", fmt.Sprintf("MAINPID=%d READY=1", g.pid))
				if got := systemd.mainPID(); got != g.pid {
					t.Errorf("the main process is %d, want the successor, %d", got, g.pid)
				}
			}
			if err := os.Rename(g.dir, g.dir+"-gone"); err != nil { // serve's -dir
				t.Fatal(err)
			}
			g.hangUp()
			systemd.await(t, g.pid, "RELOADING=1", "READY=1")
			if err := os.Rename(g.dir+"-gone", g.dir); err != nil {
				t.Fatal(err)
			}
			if err := newKeepAliveClient(t, g.httpAddress, 1).request(); err != nil {
				t.Error(err)
			}
			g.stop()
			systemd.await(t, g.pid, "STOPPING=1")
		})
	}
}

// A server whose service manager is gone serves.
func TestServeNotifiesNothing(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nothing"))
	g := startGenerations(t)
	g.output.await(t, "telling the service manager failed")
	g.restart()
	if err := newKeepAliveClient(t, g.httpAddress, 1).request(); err != nil {
		t.Error(err)
	}
	g.stop()
}
