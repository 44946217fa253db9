package percore

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/percore/percore/internal/netfallback"
)

// FileListener returns a listener on a copy of f, a listening socket that was inherited or made by a
// service manager. It fails with net.FileListener's errors. The caller still owns f. Closing the
// listener does not remove the file of a unix socket.
//
// Accepted connections get TCP_NODELAY and keep-alive as with package net: the options are set on
// the listening socket, and stay there.
//
// If a listener has several sockets ([Listener.Files]), pass all of them to FileListeners.
func FileListener(f *os.File) (net.Listener, error) {
	var lc ListenConfig
	return lc.FileListener(f)
}

// FileListener is the function FileListener with lc's options; Control, ReusePort and
// SetMultipathTCP come too late for it.
func (lc *ListenConfig) FileListener(f *os.File) (net.Listener, error) {
	return lc.FileListeners(f)
}

// FileListeners is [FileListener] for several files, as [Listener.Files] of a predecessor returns
// them: it returns one listener on copies of all their sockets. The caller still owns the files. All
// sockets must listen on the same address, and no two may be the same; otherwise FileListeners fails
// with an error that names the file, and keeps nothing.
//
// There may be more or fewer files than loops.
//
// Where percore is package net (off Linux, build tag percore_net), Close also closes connections
// from one of several sockets that wait for a call of Accept.
func FileListeners(files ...*os.File) (net.Listener, error) {
	var lc ListenConfig
	return lc.FileListeners(files...)
}

// FileListeners is the function FileListeners with lc's options; Control, ReusePort and
// SetMultipathTCP come too late for it.
func (lc *ListenConfig) FileListeners(files ...*os.File) (net.Listener, error) {
	if len(files) == 0 {
		return nil, fileOpError(nil, errors.New("no files"))
	}
	if i := slices.Index(files, nil); i >= 0 {
		return nil, fileError(files, i, fileOpError(nil, os.ErrInvalid))
	}
	if engineIsNet() {
		sockets, err := lc.netSockets(files)
		if err != nil {
			return nil, err
		}
		return lc.fallback(sockets), nil
	}
	impl, err := lc.fileListener(files)
	if err != nil {
		return nil, err
	}
	return newListener(impl), nil
}

// netSockets returns package net's listeners on copies of the files' sockets.
func (lc *ListenConfig) netSockets(files []*os.File) (all []netfallback.Socket, err error) {
	for i, f := range files {
		nl, err := net.FileListener(f)
		if err == nil {
			all = append(all, nl.(netfallback.Socket))
			err = checkFile(files, i, nl.Addr(), all[0].Addr())
		}
		if err != nil {
			closeSockets(all)
			return nil, fileError(files, i, err)
		}
	}
	if err := lc.check(all[0].Addr().Network()); err != nil {
		closeSockets(all)
		return nil, err
	}
	return all, nil
}

func closeSockets(sockets []netfallback.Socket) {
	for _, s := range sockets {
		s.Close()
	}
}

// checkFile fails unless the socket of files[index], at addr, can belong to a listener with the
// sockets of the files before it. first is the address of the first file.
func checkFile(files []*os.File, index int, addr, first net.Addr) error {
	if addr.Network() != first.Network() || addr.String() != first.String() {
		return fileOpError(addr, fmt.Errorf("not on %s %s, as the first", first.Network(), first))
	}
	for i := range index {
		if sameFile(files[i], files[index]) {
			return fileOpError(addr, fmt.Errorf("the same socket as file %d", i+1))
		}
	}
	return nil
}

func sameFile(f, g *os.File) bool {
	a, errA := f.Stat()
	b, errB := g.Stat()
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// fileOpError returns an error like net.FileListener's.
func fileOpError(addr net.Addr, err error) error {
	return &net.OpError{Op: "file", Net: "file+net", Addr: addr, Err: err}
}

// fileError adds the name of files[index] to its error err, unless it is the only file.
func fileError(files []*os.File, index int, err error) error {
	op, ok := err.(*net.OpError)
	if !ok || len(files) == 1 {
		return err
	}
	name := "nil"
	if f := files[index]; f != nil {
		name = f.Name()
	}
	named := *op
	named.Err = fmt.Errorf("file %d of %d (%s): %w", index+1, len(files), name, op.Err)
	return &named
}
