package debug

import (
	"os"

	"golang.org/x/sys/unix"
)

// descriptors returns how many descriptors the process has open, and how many it may have. It reads a
// directory with an entry for each, so it is called only while a page is open.
func descriptors() (open, limit int) {
	if d, err := os.Open("/proc/self/fd"); err == nil {
		names, _ := d.Readdirnames(-1)
		_ = d.Close()
		open = max(len(names)-1, 0) // without d
	}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		limit = int(min(r.Cur, 1<<31-1))
	}
	return open, limit
}
