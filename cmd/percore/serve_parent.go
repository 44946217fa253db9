package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A handover ends the process that was started first. A container, a service manager or a
// supervisor may wait for that process, and would take its end for the end of the service. So
// "percore serve" hands over only if it knows that this does no harm:
//
//	what has started this process       SIGHUP   -upgrade
//	nothing: it is pid 1                no       no: the container ends with it
//	percore serve -supervise            yes      no: the new process would not be its child
//	systemd, with NOTIFY_SOCKET         yes      no: the new process would not be in the control group
//	an interactive shell                yes      yes
//	a process that has ended since      yes      yes
//	a predecessor that was in this list as the predecessor
//	anything else                       no       no
//
// With -handover always it hands over anyway, and with -handover never it always refuses.

// The values of -handover.
const (
	handoverAuto   = "auto"
	handoverAlways = "always"
	handoverNever  = "never"
)

// parentage says how this process was started. It is determined at startup.
type parentage struct {
	pid, parent  int
	parentName   string
	isChild      bool // a predecessor has started it
	isSupervised bool // by percore serve -supervise
	notifies     bool // $NOTIFY_SOCKET is set
	isJob        bool // with a terminal, and in its own process group, as shells make them for jobs
}

// findParentage determines how this process was started, except for isChild and isSupervised.
func findParentage(hasTerminal bool) parentage {
	parent := os.Getppid()
	return parentage{
		pid: os.Getpid(), parent: parent, parentName: processName(parent),
		notifies: os.Getenv("NOTIFY_SOCKET") != "",
		isJob:    hasTerminal && leadsGroup(),
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

// shells are the programs that give each job a process group and prompt for the next when it ends.
var shells = []string{"sh", "ash", "bash", "dash", "elvish", "fish", "ksh", "mksh", "nu", "pwsh", "tcsh", "csh", "xonsh", "yash", "zsh"}

// check returns the reason why another process must not take the place of this one, or nil. parent
// is the current parent of this process. isOutside reports whether the other process is not a child
// of this one.
func (p parentage) check(mode string, parent int, isOutside bool) error {
	switch {
	case mode == handoverAlways:
		return nil
	case mode == handoverNever:
		return fmt.Errorf("-handover is %s", handoverNever)
	case p.pid == 1:
		return fmt.Errorf("this process is pid 1, and its container would end with it: start percore serve with -supervise")
	case p.isSupervised && isOutside:
		return fmt.Errorf("this process is a child of percore serve -supervise, and the new one would not be:" +
			" send SIGHUP to the supervising process instead of using -upgrade")
	case p.isSupervised:
		return nil
	case p.notifies && (p.isChild || p.parentName == "systemd"):
		if isOutside {
			return fmt.Errorf("systemd watches this process, and the new one would not be in its control group:" +
				" use systemctl reload instead of -upgrade")
		}
		return nil
	case p.isChild, parent != p.parent, p.isJob && slices.Contains(shells, p.parentName):
		return nil
	}
	return fmt.Errorf("process %d (%s), which has started this one, may take its end for the service's: start percore serve"+
		" with -supervise, or from systemd with Type=notify, or with -handover always if no process waits for it",
		p.parent, p.parentName)
}
