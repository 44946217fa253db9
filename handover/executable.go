package handover

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// executable returns the path that this process was started with. Unlike [os.Executable] on Linux it
// doesn't follow symbolic links. A path that is relative, or found through PATH, is looked up when the
// program starts. If the first argument wasn't the program's path, executable returns the path from
// os.Executable.
func executable() (string, error) {
	if startedAs != "" {
		return startedAs, nil
	}
	return os.Executable()
}

// startedAs is the path that this process was started with, or "" if it isn't known. It is looked up
// before the program can change its directory.
var startedAs = startPath()

func startPath() string {
	if len(os.Args) == 0 {
		return ""
	}
	path, pathErr := exec.LookPath(os.Args[0])
	path, absErr := filepath.Abs(path)
	exe, exeErr := os.Executable()
	found, foundErr := os.Stat(path)
	own, ownErr := os.Stat(exe)
	if errors.Join(pathErr, absErr, exeErr, foundErr, ownErr) != nil || !os.SameFile(found, own) {
		return "" // the caller of execve(2) may pass any first argument
	}
	return path
}
