package handover

import (
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
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	exe, err := os.Executable()
	if err != nil || !isSameFile(path, exe) {
		return "" // the caller of execve(2) may pass any first argument
	}
	return path
}

func isSameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
