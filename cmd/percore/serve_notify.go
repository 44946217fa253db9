package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager reports the state of the service with messages to $NOTIFY_SOCKET (sd_notify(3)).
// Its reader is systemd, with Type=notify or notify-reload in the unit. Without that variable it
// sends nothing.
//
//	call        in state           sends                                   state after it
//	ready       starting           READY=1                                 serving
//	succeeded   starting           nothing: the predecessor has said so    serving
//	                               (MAINPID=, READY=1, if it has crashed
//	                               under serve -supervise)
//	reloading   serving            RELOADING=1, MONOTONIC_USEC=            serving
//	ready       serving            READY=1: there is no successor          serving
//	handedOver  serving            MAINPID= of the successor, READY=1,     gone
//	                               WATCHDOG=1 if there is one
//	alive       serving            WATCHDOG=1                              serving
//	stopping    serving            STOPPING=1, EXTEND_TIMEOUT_USEC=        serving
//	(others)                       nothing                                 as before
//
// With NotifyAccess=main, the default, systemd listens to the main process only. So the
// predecessor, which is the main process until then, sends everything about its successor in one
// message. No other process sends anything: when a successor has failed, or a predecessor has been
// replaced, its end is not the end of the service. The methods are safe for concurrent use.
type serviceManager struct {
	log  *slog.Logger
	link *parentLink // if not nil, messages go to percore serve -supervise instead

	isWatched bool // alive is called from time to time

	mu    sync.Mutex
	state serviceState // guarded by mu
}

type serviceState uint8

const (
	serviceStarting serviceState = iota
	serviceServing
	serviceGone // another process is now the service
)

// ready reports that this process serves, or still serves after a failed reload.
func (m *serviceManager) ready() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == serviceGone {
		return
	}
	m.state = serviceServing
	m.send(daemon.SdNotifyReady)
}

// succeeded is ready for a process whose predecessor has already reported it, or would have if it
// hadn't crashed. If it crashed, this process reports itself to its supervisor.
func (m *serviceManager) succeeded(isOrphan bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = serviceServing
	if isOrphan && m.link != nil {
		m.send(fmt.Sprintf("MAINPID=%d\n%s", os.Getpid(), daemon.SdNotifyReady))
	}
}

// reloading reports that a successor is about to start. The timestamp shows systemd that the
// message answers the last SIGHUP and not an earlier one.
func (m *serviceManager) reloading() {
	m.whileServing(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// alive reports that the process works.
func (m *serviceManager) alive() { m.whileServing(daemon.SdNotifyWatchdog) }

// handedOver reports that the process with that pid is now the service. For a watchdog the successor has
// the whole interval from now on.
func (m *serviceManager) handedOver(pid int) {
	message := fmt.Sprintf("MAINPID=%d\n%s", pid, daemon.SdNotifyReady)
	if m.isWatched {
		message += "\n" + daemon.SdNotifyWatchdog
	}
	m.whileServing(message)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = serviceGone
}

// stopMargin is how much longer than the time for requests a process may take to end.
const stopMargin = 5 * time.Second

// stopping reports that the service ends, within limit and a moment. systemd would otherwise kill it
// after TimeoutStopSec=, 90 seconds unless the unit says more.
func (m *serviceManager) stopping(limit time.Duration) {
	m.whileServing(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, (limit + stopMargin).Microseconds()))
}

// whileServing sends a message if this process is the service.
func (m *serviceManager) whileServing(message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == serviceServing {
		m.send(message)
	}
}

// send sends a message. If it fails, the server goes on without.
func (m *serviceManager) send(message string) {
	var err error
	if m.link != nil {
		err = m.link.send(message)
	} else {
		_, err = daemon.SdNotify(false, message)
	}
	if err != nil {
		m.log.Warn("telling the service manager failed", "err", err)
	}
}
