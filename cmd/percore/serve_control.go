package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore/handover"
)

// This is the socket through which "percore serve -upgrade" finds the process that it replaces.

// controlAuto is the default of -control. It stands for the names that controlNames returns.
const controlAuto = "auto"

// controlNames returns the names that the socket may have, best first. It is empty if the socket
// can't have a name. The serving process takes the first name that works, and -upgrade takes the
// first name on which a process listens.
func (o *serveOptions) controlNames() (names []string) {
	switch {
	case o.control == "":
		return nil
	case o.control != controlAuto:
		return []string{o.control}
	}
	for _, address := range []string{o.httpAddress, o.grpcAddress} {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "0" {
			return nil // not known before it is listened on
		}
	}
	for _, folder := range controlFolders() {
		names = append(names, filepath.Join(folder, o.controlFile()))
	}
	return names
}

// controlFolders returns the directories for this user's sockets. handover.Listen makes them with
// mode 0700 and checks them. They are in the user's runtime directory (or root's), or else in the
// directory for temporary files. In the latter a stranger may have made the directory first: then
// there is no socket.
func controlFolders() (folders []string) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && isOwn(dir) {
		folders = append(folders, filepath.Join(dir, "percore"))
	}
	if os.Geteuid() == 0 {
		folders = append(folders, "/run/percore")
	}
	return append(folders, filepath.Join(os.TempDir(), fmt.Sprintf("percore-%d", os.Geteuid())))
}

// controlFileMax is the maximum length of a file name. It is below NAME_MAX, to leave room for what
// handover.Listen adds.
const controlFileMax = 200

// controlFile is the name of the socket's file. It depends on the addresses and on the network
// namespace, because another process may use the same addresses in another namespace.
func (o *serveOptions) controlFile() string {
	network, _ := os.Readlink("/proc/self/ns/net") // net:[4026531840]
	network = strings.Trim(network, "net:[]")
	name := strings.Join([]string{url.PathEscape(o.httpAddress), url.PathEscape(o.grpcAddress), network}, ",")
	if len(name) > controlFileMax {
		name = fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
	}
	return name
}

// dialPredecessor connects to the process that this one replaces.
func (o *serveOptions) dialPredecessor() (*net.UnixConn, error) {
	var all []error
	for _, name := range o.controlNames() {
		c, err := handover.Dial(name)
		if err == nil {
			return c, nil
		}
		all = append(all, err)
	}
	for _, err := range all {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("-upgrade: %w", err)
		}
	}
	return nil, fmt.Errorf("-upgrade: no percore serve of this user with the same -http, -grpc and -control is running (%w)", all[0])
}

// listenControl returns the socket for -upgrade. If that fails, the server runs without it.
func (d *demo) listenControl(ctx context.Context) (c *handover.Control) {
	names := d.opts.controlNames()
	if len(names) == 0 || d.engine.group == nil {
		return nil
	}
	err := d.onceFree(ctx, func() (err error) { // the predecessor may still have an abstract name
		c, err = listenAny(names)
		return err
	})
	if err != nil {
		d.log.Warn("percore serve -upgrade will not find this process", "err", err)
	}
	return c
}

// listenAny listens on the first name that works. If no name works, it returns the error for the
// first.
func listenAny(names []string) (c *handover.Control, first error) {
	for _, name := range names {
		c, err := handover.Listen(name)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// refusalsPeriod is the time between two log lines about processes that may not take over.
const refusalsPeriod = time.Minute

// refusals logs the processes that have asked to take over and may not. It logs the first one at
// once. If more follow, it logs their number once per refusalsPeriod, since they can connect as
// often as they like. Its method is safe for concurrent use.
type refusals struct {
	log *slog.Logger

	mu    sync.Mutex
	since int           // processes since the last line; guarded by mu
	last  handover.Peer // the last of them; guarded by mu
	why   error         // guarded by mu
	waits bool          // a line is due at the end of the period; guarded by mu
}

// add counts a process.
func (r *refusals) add(p handover.Peer, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.last, r.why = r.since+1, p, why
	if !r.waits {
		r.tellLocked()
	}
}

// tellLocked logs the processes since the last line. It runs again after the period as long as
// there are any.
func (r *refusals) tellLocked() {
	if r.waits = r.since > 0; !r.waits {
		return
	}
	r.log.Warn("refused to hand over to other processes", "count", r.since, "uid", r.last.UID, "pid", r.last.PID, "err", r.why)
	r.since = 0
	time.AfterFunc(refusalsPeriod, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tellLocked()
	})
}
