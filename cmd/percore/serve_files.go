package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// rootFS is the files below an os.Root for http.FileServer. Unlike http.FS(root.FS()), it returns
// bare *os.File values, and net/http sends those with sendfile.
type rootFS struct{ root *os.Root }

// Open opens the file or directory called name, a slash-separated path whose root is
// the served directory. Its errors are such that http.FileServer answers 404 for
// names that can't exist and 403 for files that must not be reached.
func (r rootFS) Open(name string) (http.File, error) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		name = "."
	}
	local, err := filepath.Localize(name)
	if err != nil {
		return nil, fs.ErrNotExist // NUL, or a reserved name on Windows
	}
	f, err := r.openRegular(local)
	if err != nil {
		return nil, httpOpenError(err)
	}
	return f, nil
}

// openRegular opens a regular file or a directory. It checks the type first, since opening a named
// pipe would wait for a writer.
func (r rootFS) openRegular(name string) (*os.File, error) {
	info, err := r.root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fs.ErrPermission
	}
	return r.root.Open(name)
}

// httpOpenError turns an error of os.Root into one that makes net/http answer with the right
// status.
func httpOpenError(err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return err
	case !errors.As(err, &errno):
		return fs.ErrPermission // os.Root refuses: the path leads out of the directory
	case errno == syscall.ENOTDIR, errno == syscall.ENAMETOOLONG, errno == syscall.ELOOP:
		return fs.ErrNotExist
	}
	return err
}
