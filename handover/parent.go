package handover

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A handover ends the process that was started first. A container, a service manager or a supervisor
// may wait for that process, and would take its end for the end of the service. So a [Service] hands
// over only if it knows that this is safe:
//
//	what has started this process       may it hand over?
//	nothing: it is pid 1                never: the container ends with it
//	systemd, with NOTIFY_SOCKET         yes: it is told which process to follow
//	an interactive shell                yes
//	a process that has ended since      yes
//	a predecessor that could hand over  yes
//	anything else                       with Service.AnyParent
type parentage struct {
	pid, parent int
	parentName  string
	isSuccessor bool // a predecessor has started it
	notifies    bool // $NOTIFY_SOCKET is set
	isJob       bool // with a terminal, and in its own process group, as shells make them for jobs
}

// findParentage determines how this process was started, except for isSuccessor. terminal says that it
// has one. It is called early, before the parent can end.
func findParentage(terminal bool) parentage {
	parent := os.Getppid()
	return parentage{
		pid: os.Getpid(), parent: parent, parentName: processName(parent),
		notifies: os.Getenv("NOTIFY_SOCKET") != "",
		isJob:    terminal && leadsGroup(),
	}
}

// processName returns the name of a running program (comm in proc(5)), or "".
func processName(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// hasTerminal reports whether the process has a controlling terminal, which is still there (tty(4)).
func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}

// shells are the programs that give each job a process group and prompt for the next when it ends.
var shells = []string{"sh", "ash", "bash", "dash", "elvish", "fish", "ksh", "mksh", "nu", "pwsh", "tcsh", "csh", "xonsh", "yash", "zsh"}

// check returns the reason why a successor must not take the place of this process, or nil. parent is
// this process's parent now.
func (p parentage) check(parent int, anyParent bool) error {
	switch {
	case p.pid == 1:
		return errors.New("this process is pid 1, and its container would end with it: replace the container instead")
	case anyParent, p.isSuccessor, parent != p.parent,
		p.notifies && p.parentName == "systemd",
		p.isJob && slices.Contains(shells, p.parentName):
		return nil
	}
	return fmt.Errorf("process %d (%s), which has started this one, may take its end for the service's: start it from"+
		" systemd with Type=notify, or set Service.AnyParent if no process waits for it, or follows the successor",
		p.parent, p.parentName)
}
