package handover

import (
	"os"
	"os/exec"
	"path/filepath"
)

// Executable returns the path by which this process was started, for [exec.Command]: the successor
// is the program that is there by then. Unlike [os.Executable] on Linux it doesn't follow symbolic
// links: where a link such as current points from release to release, the successor is of the
// release that it points to now. A path that begins at the working directory, or is found by PATH,
// is looked up when the program starts. If the first argument wasn't the program's path Executable
// is os.Executable.
func Executable() (string, error) {
	if startedAs != "" {
		return startedAs, nil
	}
	return os.Executable()
}

// startedAs is the path by which this process was started, or "" if it isn't known. It is found
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
		return "" // the first argument is what the caller of execve(2) likes
	}
	return path
}

func isSameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
