package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager is told the state of the service by messages to $NOTIFY_SOCKET (sd_notify(3)):
// systemd, with Type=notify or notify-reload in the unit. Without that variable nothing is sent.
//
//	call        in state           sends                                   state after it
//	ready       starting           READY=1                                 serving
//	succeeded   starting           nothing: the predecessor has said so    serving
//	                               (MAINPID=, READY=1, if it has crashed
//	                               under serve -supervise)
//	reloading   serving            RELOADING=1, MONOTONIC_USEC=            serving
//	ready       serving            READY=1: there is no successor          serving
//	handedOver  serving            MAINPID= of the successor, READY=1      gone
//	stopping    serving            STOPPING=1                              serving
//	(others)                       nothing                                 as before
//
// With NotifyAccess=main, the default, systemd hears the main process only. So the predecessor, which is
// the main process until then, says all about its successor, in one message. No other process speaks:
// the end of a successor that has failed, or of a predecessor that has been replaced, is not the
// service's. The methods are safe for concurrent use.
type serviceManager struct {
	log  *slog.Logger
	link *parentLink // nil: no percore serve -supervise is told instead

	mu    sync.Mutex
	state serviceState // guarded by mu
}

type serviceState uint8

const (
	serviceStarting serviceState = iota
	serviceServing
	serviceGone // another process is the service
)

// ready says that this process serves, or serves on after a reload that has failed.
func (m *serviceManager) ready() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == serviceGone {
		return
	}
	m.state = serviceServing
	m.send(daemon.SdNotifyReady)
}

// succeeded is ready for a process about which its predecessor has said so, or, if it has crashed, would
// have. In that case the process says so to the process that supervises it.
func (m *serviceManager) succeeded(isOrphan bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = serviceServing
	if isOrphan && m.link != nil {
		m.send(fmt.Sprintf("MAINPID=%d\n%s", os.Getpid(), daemon.SdNotifyReady))
	}
}

// reloading says that a successor is about to be started. The time shows systemd that the message
// answers the last SIGHUP, not one before it.
func (m *serviceManager) reloading() {
	m.whileServing(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// handedOver says that the process with that pid is the service.
func (m *serviceManager) handedOver(pid int) {
	m.whileServing(fmt.Sprintf("MAINPID=%d\n%s", pid, daemon.SdNotifyReady))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = serviceGone
}

// stopping says that the service ends.
func (m *serviceManager) stopping() { m.whileServing(daemon.SdNotifyStopping) }

// whileServing sends a message if this process is the service.
func (m *serviceManager) whileServing(message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == serviceServing {
		m.send(message)
	}
}

// send sends a message. The server does without if it can't.
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
