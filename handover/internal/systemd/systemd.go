// Package systemd reports the state of a service to its service manager, usually systemd, while one
// process replaces another: which process serves, that it works, and that it ends (sd_notify(3)). It
// also finds sockets that the service manager has opened (sd_listen_fds(3)).
package systemd

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// Notifier reports the state of the service with messages to $NOTIFY_SOCKET, for Type=notify or
// notify-reload in systemd's unit. Without that variable it sends nothing. The zero value is ready to
// use. If a message can't be sent slog's default logger gets a line, and the service goes on.
//
//	call        in state   sends                                     state after it
//	Ready       starting   READY=1                                   serving
//	Succeeded   starting   nothing: the predecessor has said so      serving
//	Orphaned    starting   MAINPID= of this process, READY=1         serving
//	Reloading   serving    RELOADING=1, MONOTONIC_USEC=              serving
//	Ready       serving    READY=1: there is no successor            serving
//	HandedOver  serving    MAINPID= of the successor, READY=1,       gone
//	                       WATCHDOG=1 if there is a watchdog
//	Alive       serving    WATCHDOG=1                                serving
//	Stopping    serving    STOPPING=1, EXTEND_TIMEOUT_USEC=          serving
//	(others)               nothing                                   as before
//
// With NotifyAccess=main, the default, systemd listens to the main process only. So the predecessor,
// which is the main process until then, sends everything about its successor in one message. No other
// process sends anything: when a successor has failed, or a predecessor has been replaced, its end is
// not the end of the service. The methods are safe for concurrent use, and wait only for the socket.
type Notifier struct {
	watchdog time.Duration // WatchdogSec= of the unit: see InheritWatchdog. 0: there is none

	mu    sync.Mutex
	state state // guarded by mu
}

type state uint8

const (
	starting state = iota
	serving
	gone // another process is now the service
)

// stopMargin is how much longer than the time for requests a process may take to end.
const stopMargin = 5 * time.Second

// Ready reports that this process serves, or still serves after a failed reload.
func (n *Notifier) Ready() {
	n.Succeeded()
	n.in(serving, "READY=1", serving)
}

// Succeeded is Ready for a process that has taken over: its predecessor reports it.
func (n *Notifier) Succeeded() { n.in(starting, "", serving) }

// Orphaned is Succeeded for a process whose predecessor has ended before it could say so. systemd
// listens to it only with NotifyAccess=all; otherwise the end of the predecessor ends the service.
func (n *Notifier) Orphaned() {
	n.in(starting, fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid()), serving)
}

// Reloading reports that a successor is about to start. The time in it (on Linux)
// shows systemd that the message answers the last signal and not an earlier one.
func (n *Notifier) Reloading() { n.in(serving, "RELOADING=1"+monotonicUsec(), serving) }

// HandedOver reports that the process with that pid is now the service. It has all of the watchdog's
// time from then on.
func (n *Notifier) HandedOver(pid int) {
	message := fmt.Sprintf("MAINPID=%d\nREADY=1", pid)
	if n.watchdog > 0 {
		message += "\nWATCHDOG=1"
	}
	n.in(serving, message, gone)
}

// Alive reports that the process works.
func (n *Notifier) Alive() { n.in(serving, "WATCHDOG=1", serving) }

// Stopping reports that the service ends, within limit and a moment. systemd would otherwise kill it
// after TimeoutStopSec=, 90 seconds unless the unit says more.
func (n *Notifier) Stopping(limit time.Duration) {
	n.in(serving, fmt.Sprintf("STOPPING=1\nEXTEND_TIMEOUT_USEC=%d", (limit+stopMargin).Microseconds()), serving)
}

// in sends a message, if there is one, when the state is before, and goes on to another.
func (n *Notifier) in(before state, message string, after state) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != before {
		return
	}
	n.state = after
	if message == "" {
		return
	}
	if err := notify(message); err != nil {
		slog.Warn("telling the service manager failed", "error", err)
	}
}

var notify = send // a variable for tests

// send sends a message to $NOTIFY_SOCKET, if there is one.
func send(message string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	// A name that begins with @ is abstract for package net, too.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = c.Write([]byte(message))
	return errors.Join(err, c.Close())
}
