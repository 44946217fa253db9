//go:build !percore_net

package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlFile is the file of a named socket. A process locks the folder before it changes a name in
// it, so that no process removes the socket that another has just put in its place.
type controlFile struct {
	once   sync.Once
	folder *os.File
	name   string      // in the folder
	own    os.FileInfo // of the file
}

func listenControl(name string) (*Control, error) {
	if isAbstract(name) {
		l, err := listenUnix(name)
		if err != nil {
			return nil, err
		}
		return &Control{listener: l}, nil
	}
	if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	folder, err := openFolder(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	f := &controlFile{folder: folder, name: filepath.Base(name)}
	l, err := f.listen()
	if err != nil {
		folder.Close()
		return nil, err
	}
	return &Control{listener: l, file: f}, nil
}

func dialControl(name string) (*net.UnixConn, error) {
	if !isAbstract(name) {
		folder, err := openFolder(filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		name = pathIn(folder, filepath.Base(name))
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: name})
	return c, withoutAddr(err)
}

func listenUnix(name string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: name})
	return l, withoutAddr(err)
}

// withoutAddr returns the cause of a *net.OpError, whose address means nothing to people.
func withoutAddr(err error) error {
	if op, ok := err.(*net.OpError); ok {
		return op.Err
	}
	return err
}

// openFolder opens a folder and checks it. pathIn uses the open folder, so it uses the one checked.
func openFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, errors.New("its folder is a symbolic link, or no folder")
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkFolder(info, int(info.Sys().(*syscall.Stat_t).Uid))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// pathIn returns a path of the name in an open folder (proc(5)). It is short, whatever the folder's
// path: the address of a unix socket has 108 bytes.
func pathIn(folder *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name)
}

// listen makes the socket under a name of its own, and then gives it the name that clients know, so
// that at each moment one of the processes listens there.
func (f *controlFile) listen() (l *net.UnixListener, err error) {
	unlock, err := f.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	path := pathIn(f.folder, f.name)
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, errors.New("there is something else than a socket")
	}
	own := path + "." + strconv.Itoa(os.Getpid())
	_ = os.Remove(own) // of a process that had this pid
	if l, err = listenUnix(own); err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(own, 0o600); err == nil {
		err = os.Rename(own, path)
	}
	if err == nil {
		f.own, err = os.Lstat(path)
	}
	if err != nil {
		_ = os.Remove(own)
		l.Close()
		return nil, err
	}
	return l, nil
}

// remove removes the file if it is this process's, once.
func (f *controlFile) remove() {
	f.once.Do(func() {
		defer f.folder.Close()
		unlock, err := f.lock()
		if err != nil {
			return // the file stays, without a listener
		}
		defer unlock()
		path := pathIn(f.folder, f.name)
		if now, err := os.Lstat(path); err == nil && os.SameFile(now, f.own) {
			_ = os.Remove(path)
		}
	})
}

// lock waits until no other process changes the names in the folder.
func (f *controlFile) lock() (unlock func(), err error) {
	fd := int(f.folder.Fd())
	for {
		err = unix.Flock(fd, unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, os.NewSyscallError("flock", err)
	}
	return func() { _ = unix.Flock(fd, unix.LOCK_UN) }, nil
}
