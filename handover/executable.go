package handover

import (
	"os"
	"os/exec"
	"path/filepath"
)

// Executable returns the path that this process was started with, for [exec.Command]: the successor
// is the program that is now there. Unlike [os.Executable] on Linux it doesn't follow symbolic
// links: if a link such as current moves from release to release, the successor is of the release
// that it points to now. A path that is relative, or found through PATH, is looked up when the
// program starts. If the first argument wasn't the program's path, Executable returns the path from
// os.Executable.
func Executable() (string, error) {
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
