//go:build !percore_net

package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/percore/percore/handover"
	"github.com/percore/percore/handover/systemd"
)

// forwarded are the signals that a supervising process passes on to the server.
var forwarded = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// supervision is the state of a supervising process and its servers. One goroutine uses it.
//
//	event                      in state    effect
//	SIGHUP, SIGUSR1, SIGUSR2   any         to the main server
//	SIGTERM, SIGINT, SIGQUIT   any         to the main server, and to its later successors
//	MAINPID= from a server     any         that process is the main server
//	SIGCHLD                    any         all children that have ended are reaped
//	the socket's end           serving     ending: the last server has closed its end, or has been killed
//	the main server is reaped  ending      the end, with its exit status
type supervision struct {
	log      *slog.Logger
	conn     *net.UnixConn
	main     int                        // the server that serves, or the last that did
	ended    map[int]syscall.WaitStatus // children that were reaped
	stopping syscall.Signal             // 0: no signal has come that ends a server
}

// prSetChildSubreaper is PR_SET_CHILD_SUBREAPER, which is missing in package syscall.
const prSetChildSubreaper = 36

// supervise runs the program with args as a child, and then its successors, until the last has
// ended. It returns the exit status of the last server.
func supervise(args []string, stderr io.Writer) (status int, err error) {
	signals := make(chan os.Signal, 64)
	notifyForwarded(signals)
	// Successors become children of this process when their predecessors end
	// (PR_SET_CHILD_SUBREAPER in prctl(2)).
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return exitFailure, os.NewSyscallError("prctl", errno)
	}
	s := &supervision{log: newLogger(stderr, false), ended: make(map[int]syscall.WaitStatus)}
	if err := s.start(args); err != nil {
		return exitFailure, err
	}
	defer s.conn.Close()
	return s.run(signals), nil
}

// notifyForwarded subscribes to the signals. If nohup(1) has set SIGHUP to be ignored, it stays
// ignored.
func notifyForwarded(signals chan os.Signal) {
	signal.Notify(signals, syscall.SIGCHLD)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
}

// start starts the first server. The server gets its own process group. This way Ctrl-C in a
// terminal reaches it only once, through this process, which passes it on.
func (s *supervision) start(args []string) error {
	exe, err := handover.Executable()
	if err != nil {
		return err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "servers"), os.NewFile(uintptr(fds[1]), "supervisor")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours) // of a copy
	if err != nil {
		return err
	}
	s.conn = c.(*net.UnixConn)
	sockets := systemd.Sockets()
	defer closeFiles(sockets)
	watchdog, err := systemd.InheritWatchdog()
	if err != nil {
		s.log.Warn("the service manager's watchdog", "err", err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = withoutVariable(os.Environ(), "NOTIFY_SOCKET") // only this process sends to it
	passSockets(cmd, sockets)
	passParentLink(cmd, theirs)
	watchdog.PassOn(cmd)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.conn.Close()
		return fmt.Errorf("starting the server: %w", err)
	}
	s.main = cmd.Process.Pid
	_ = cmd.Process.Release() // reap waits for all children
	return nil
}

// withoutVariable returns the environment without one variable.
func withoutVariable(env []string, name string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, name+"=") {
			rest = append(rest, v)
		}
	}
	return rest
}

// endPause is the time between two checks for the main server once the socket has ended: the
// process exits a moment later.
const endPause = 50 * time.Millisecond

// run serves until the last server has ended, and returns the exit status.
func (s *supervision) run(signals <-chan os.Signal) int {
	messages := s.receive()
	var look <-chan time.Time
	for {
		select {
		case sig := <-signals:
			s.handle(sig.(syscall.Signal))
		case m, ok := <-messages:
			if ok {
				s.hear(m)
				continue
			}
			messages, look = nil, time.Tick(endPause)
		case <-look:
			s.reap()
		}
		if look == nil {
			continue
		}
		if status, ok := s.status(); ok {
			return status
		}
	}
}

// receive returns a channel with the servers' messages. The channel is closed when no server has
// the socket any more.
func (s *supervision) receive() <-chan string {
	messages := make(chan string)
	go func() {
		defer close(messages)
		buf := make([]byte, 4096)
		for {
			n, err := s.conn.Read(buf)
			if err != nil || n == 0 {
				return
			}
			messages <- string(buf[:n])
		}
	}()
	return messages
}

// handle passes a signal on or, for SIGCHLD, reaps children.
func (s *supervision) handle(sig syscall.Signal) {
	switch sig {
	case syscall.SIGCHLD:
		s.reap()
		return
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
		s.stopping = sig
	}
	s.forward(sig)
}

// forward sends the main server a signal, unless its pid may belong to another process.
func (s *supervision) forward(sig syscall.Signal) {
	if _, ended := s.ended[s.main]; !ended {
		_ = syscall.Kill(s.main, sig)
	}
}

// hear follows a handover. It passes everything except the pid on to the service manager of this
// process, if there is one.
func (s *supervision) hear(message string) {
	var rest []string
	for line := range strings.SplitSeq(message, "\n") {
		text, isPID := strings.CutPrefix(line, "MAINPID=")
		if !isPID {
			rest = append(rest, line)
			continue
		}
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 1 || pid == s.main {
			continue
		}
		s.log.Info("the server has a successor", "pid", pid, "predecessor", s.main)
		s.main = pid
		if syscall.Kill(pid, 0) == nil {
			delete(s.ended, pid) // from an earlier process with the same pid
		}
		if s.stopping != 0 {
			s.forward(s.stopping)
		}
	}
	if err := systemd.Notify(strings.Join(rest, "\n")); err != nil {
		s.log.Warn("telling the service manager failed", "err", err)
	}
}

// reap reaps all children that have ended. As with pid 1, these include children of other processes
// that this one has inherited.
func (s *supervision) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		s.ended[pid] = status
		if pid != s.main && len(s.ended) > endedMax { // ended before it became the main server
			clear(s.ended)
		}
	}
}

// endedMax is how many exit statuses are kept: a successor may end before this process has heard
// that it is the main server.
const endedMax = 1000

// status returns the exit status of the main server if it has ended, in the form that shells use.
func (s *supervision) status() (status int, ok bool) {
	ended, ok := s.ended[s.main]
	switch {
	case !ok && syscall.Kill(s.main, 0) != syscall.ESRCH:
		return 0, false
	case !ok: // another process has reaped it
		return exitFailure, true
	case ended.Signaled():
		return 128 + int(ended.Signal()), true
	}
	return ended.ExitStatus(), true
}

// closeOnExec keeps a descriptor from the processes that this one starts.
func closeOnExec(fd int) { syscall.CloseOnExec(fd) }

// leadsGroup reports whether this process leads its process group and doesn't share it with its
// parent.
func leadsGroup() bool {
	group, err := syscall.Getpgid(0)
	return err == nil && group == os.Getpid()
}
