package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/percore/percore"
	"github.com/percore/percore/handover/systemd"
)

// A service manager may open the sockets and start the server with them (sd_listen_fds(3)); then
// connections wait while the server is stopped, and ports below 1024 need no right. The names of the
// sockets, FileDescriptorName= in systemd.socket(5), say which listener they are for:
//
//	name                                   listener, instead of the address of
//	http, https                            -http
//	grpc                                   -grpc
//	admin                                  -admin
//	NAME.socket, as without a name; none   -http
//
// Several sockets of one name must have the same address, as with ReusePort=yes, and are one listener.
//
// Only the first process gets sockets in this way. Its successors get them by a handover.

// openSockets are the sockets that this process was started with.
type openSockets struct {
	files map[string][]*os.File // by the name of the flag whose address they replace
}

// inheritSockets returns the sockets that the environment announces, and removes them from it.
func inheritSockets() (*openSockets, error) {
	files := passedSockets()
	if files == nil {
		files = systemd.Sockets()
	}
	sockets := &openSockets{make(map[string][]*os.File)}
	for _, f := range files {
		name, ok := socketFor(f.Name())
		if !ok {
			closeFiles(files)
			return nil, fmt.Errorf("the service manager has opened a socket with the name %q: want http, grpc or admin", f.Name())
		}
		sockets.files[name] = append(sockets.files[name], f)
	}
	return sockets, nil
}

// socketFor returns the flag whose address a socket of that name replaces.
func socketFor(name string) (flag string, ok bool) {
	switch {
	case name == "http", name == "grpc", name == "admin":
		return name, true
	case name == "https", name == "",
		strings.HasSuffix(name, ".socket"): // the unit's name, which systemd takes
		return "http", true
	}
	return "", false
}

// check finds sockets that the options have no use for.
func (s *openSockets) check(opts serveOptions) error {
	switch {
	case len(s.files) > 0 && opts.upgrade:
		return errors.New("-upgrade takes the sockets of the other process, and the service manager has opened some, too:" +
			" leave out one of them")
	case s.files["admin"] != nil && opts.adminAddress == "":
		return errors.New("the service manager has opened a socket for -admin, which is off: leave out one of them")
	}
	return nil
}

// listen returns a listener on the sockets for a flag, or nil if there are none. lc is nil for package
// net's listener.
func (s *openSockets) listen(flag string, lc *percore.ListenConfig) (l net.Listener, err error) {
	if s == nil || s.files[flag] == nil {
		return nil, nil
	}
	files := s.files[flag]
	switch {
	case lc != nil:
		l, err = lc.FileListeners(files...)
	case len(files) > 1:
		err = fmt.Errorf("%d sockets, and -engine %s takes one", len(files), engineNet)
	default:
		l, err = net.FileListener(files[0])
	}
	if err != nil {
		return nil, fmt.Errorf("the service manager's sockets for -%s: %w", flag, err)
	}
	return l, nil
}

// close closes the files. The listeners have copies of their own.
func (s *openSockets) close() {
	for _, files := range s.files {
		closeFiles(files)
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// socketsVariable is the environment variable with which serve -supervise announces sockets to the
// server, since the variables of service managers have a pid in them. It has their names, separated by
// colons; their descriptors begin at firstSocket.
const (
	socketsVariable = "PERCORE_SOCKETS"
	firstSocket     = 3
)

// passSockets lets a command inherit the sockets. It comes before everything else that it inherits.
func passSockets(cmd *exec.Cmd, files []*os.File) {
	if len(files) == 0 {
		return
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name()
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, files...)
	cmd.Env = append(cmd.Environ(), socketsVariable+"="+strings.Join(names, ":"))
}

// passedSockets returns the sockets of passSockets, or nil.
func passedSockets() (files []*os.File) {
	names, ok := os.LookupEnv(socketsVariable)
	if !ok {
		return nil
	}
	os.Unsetenv(socketsVariable)
	for i, name := range strings.Split(names, ":") {
		closeOnExec(firstSocket + i)
		files = append(files, os.NewFile(uintptr(firstSocket+i), name))
	}
	return files
}
