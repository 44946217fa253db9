//go:build !percore_net

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// supervised is "percore serve -supervise", whose first process stays the same.
type supervised struct {
	*generations
	client *keepAliveClient
}

func startSupervised(t *testing.T, args ...string) *supervised {
	t.Helper()
	g := newGenerations(t)
	g.mode = handoverAuto
	g.startFirst(append([]string{"-supervise"}, args...)...)
	return &supervised{g, newKeepAliveClient(t, g.httpAddress, 1)}
}

// restart sends SIGHUP to the supervising process, and returns when a new server has everything.
func (s *supervised) restart() {
	s.t.Helper()
	servers, followed := s.count("stops the servers"), s.count("the server has a successor")
	_ = s.first.Process.Signal(syscall.SIGHUP)
	testnet.Eventually(s.t, "the successor", func() bool {
		return s.count("stops the servers") > servers && s.count("the server has a successor") > followed
	})
}

func (s *supervised) mustServe() {
	s.t.Helper()
	if err := s.client.request(); err != nil {
		s.t.Error(err)
	}
}

// server is the pid of the server that has taken over last.
func (s *supervised) server() int {
	s.t.Helper()
	all := regexp.MustCompile(`has a successor" pid=(\d+)`).FindAllStringSubmatch(s.output.String(), -1)
	if len(all) == 0 {
		s.t.Fatal("no server has a successor")
	}
	pid, _ := strconv.Atoi(all[len(all)-1][1])
	return pid
}

// The process that a supervisor knows goes on through all restarts, and ends as the last server does.
func TestServeSupervise(t *testing.T) {
	s := startSupervised(t)
	s.mustServe()
	for range 3 {
		s.restart()
		s.mustServe()
	}
	if !s.isRunning(s.first.Process.Pid) {
		t.Fatal("the supervising process has ended")
	}
	_ = s.first.Process.Signal(syscall.SIGTERM)
	if err := waitFor(t, s.first); err != nil {
		t.Errorf("the supervising process: %v\n%s", err, s.output)
	}
	if s.isRunning(s.server()) {
		t.Error("a server has outlived the supervising process")
	}
	for _, bad := range []string{"failed", "panic", "cut off"} {
		if s.count(bad) > 0 {
			t.Errorf("the processes say %q:\n%s", bad, s.output)
		}
	}
}

// The exit status is the last server's, whichever generation that is, and however it ends.
func TestServeSuperviseStatus(t *testing.T) {
	t.Run("never served", func(t *testing.T) {
		g := newGenerations(t)
		for status, args := range map[int][]string{
			exitUsage:   {"-supervise", "-park", "-1s"},
			exitFailure: {"-supervise", "-dir", filepath.Join(g.dir, "nothing")},
		} {
			cmd := g.start(args...)
			if _ = waitFor(t, cmd); cmd.ProcessState.ExitCode() != status {
				t.Errorf("%q: got %v, want status %d", args, cmd.ProcessState, status)
			}
		}
	})
	for restarts := range 2 {
		t.Run(fmt.Sprintf("killed after %d restarts", restarts), func(t *testing.T) {
			s := startSupervised(t)
			var server int
			if restarts == 0 {
				testnet.Eventually(t, "the server", func() bool {
					children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.first.Process.Pid))
					server, _ = strconv.Atoi(strings.TrimSpace(string(children)))
					if server == 0 {
						server = childOf(s.first.Process.Pid)
					}
					return server != 0
				})
			} else {
				s.restart()
				server = s.server()
			}
			_ = syscall.Kill(server, syscall.SIGKILL)
			_ = waitFor(t, s.first)
			if got, want := s.first.ProcessState.ExitCode(), 128+int(syscall.SIGKILL); got != want {
				t.Errorf("got status %d, want %d\n%s", got, want, s.output)
			}
		})
	}
}

// childOf returns a child of a process, or 0: not every kernel has the file children.
func childOf(parent int) int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(parent) {
				pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
				return pid
			}
		}
	}
	return 0
}

// A successor that fails changes nothing, and the next attempt succeeds.
func TestServeSuperviseFails(t *testing.T) {
	s := startSupervised(t)
	s.mustServe()
	if err := os.Rename(s.dir, s.dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	_ = s.first.Process.Signal(syscall.SIGHUP)
	s.output.await(t, "handing over failed")
	s.mustServe()
	if err := os.Rename(s.dir+"-gone", s.dir); err != nil {
		t.Fatal(err)
	}
	s.restart() // the one that failed was forgotten before the log said so
	s.mustServe()
	_ = s.first.Process.Signal(syscall.SIGTERM)
	if err := waitFor(t, s.first); err != nil {
		t.Errorf("the supervising process: %v\n%s", err, s.output)
	}
}

// Servers end when the process that supervises them is killed: another would start anew.
func TestServeSuperviseKilled(t *testing.T) {
	s := startSupervised(t)
	s.restart()
	_ = s.first.Process.Kill()
	_ = waitFor(t, s.first)
	s.output.await(t, "the supervising process has ended")
	testnet.Eventually(t, "the end of the server", func() bool { return !s.isRunning(s.server()) })
}

// A service manager hears one process, the one that it has started, and of no other.
func TestServeSuperviseNotifies(t *testing.T) {
	systemd := newSupervisor(t, false)
	s := startSupervised(t)
	pid := s.first.Process.Pid
	systemd.await(t, pid, "READY=1")
	s.restart()
	systemd.await(t, pid, "RELOADING=1", "READY=1")
	_ = s.first.Process.Signal(syscall.SIGTERM)
	if err := waitFor(t, s.first); err != nil {
		t.Error(err)
	}
	systemd.await(t, pid, "STOPPING=1")
}

// A process whose end others wait for stays, and says what to do, to its operator and to -upgrade.
func TestServeRefusesRestart(t *testing.T) {
	g := newGenerations(t)
	g.mode = handoverAuto
	g.startFirst()
	c := newKeepAliveClient(t, g.httpAddress, 1)
	_ = g.first.Process.Signal(syscall.SIGHUP)
	g.output.await(t, "restarting failed")
	g.output.await(t, "start percore serve with -supervise, or from systemd with Type=notify, or with -handover always")
	second := g.start("-upgrade")
	if _ = waitFor(t, second); second.ProcessState.ExitCode() != exitFailure {
		t.Errorf("-upgrade: got %v, want status %d", second.ProcessState, exitFailure)
	}
	g.output.await(t, "the other process gave up: process ")
	if err := c.request(); err != nil {
		t.Error(err)
	}
	g.stop()
}

// -upgrade doesn't take a server away from the process that supervises it.
func TestServeSuperviseUpgrade(t *testing.T) {
	s := startSupervised(t)
	second := s.start("-upgrade")
	if _ = waitFor(t, second); second.ProcessState.ExitCode() != exitFailure {
		t.Errorf("-upgrade: got %v, want status %d", second.ProcessState, exitFailure)
	}
	s.output.await(t, "send SIGHUP to the supervising process")
	s.mustServe()
	_ = s.first.Process.Signal(syscall.SIGTERM)
	if err := waitFor(t, s.first); err != nil {
		t.Error(err)
	}
}

// As pid 1 of a container a process refuses to be replaced, and with -supervise the container goes on.
func TestServePID1(t *testing.T) {
	for _, supervises := range []bool{false, true} {
		t.Run(fmt.Sprint("supervises ", supervises), func(t *testing.T) {
			g := newGenerations(t)
			g.mode = handoverAuto
			g.namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
			var args []string
			if supervises {
				args = append(args, "-supervise")
			}
			g.startFirst(args...)
			c := newKeepAliveClient(t, g.httpAddress, 1)
			for range 2 {
				if err := c.request(); err != nil {
					t.Fatal(err)
				}
				servers := g.count("stops the servers")
				_ = g.first.Process.Signal(syscall.SIGHUP)
				if supervises {
					testnet.Eventually(t, "the successor", func() bool {
						return g.count("stops the servers") > servers && g.count("the server has a successor") == servers
					})
				} else {
					g.output.await(t, "this process is pid 1, and its container would end with it: start percore serve with -supervise")
				}
			}
			if err := c.request(); err != nil {
				t.Error(err)
			}
			_ = g.first.Process.Signal(syscall.SIGTERM)
			if err := waitFor(t, g.first); err != nil {
				t.Errorf("pid 1: %v\n%s", err, g.output)
			}
		})
	}
}

// inNamespaces has a command begin in namespaces of its own.
func inNamespaces(cmd *exec.Cmd, namespaces uintptr) {
	if namespaces == 0 {
		return
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
}
