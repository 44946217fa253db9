package testnet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// leakedFDs lists the descriptors in after that before did not have, as "number target", ordered by
// number. A number whose target changed counts: the old file was closed and a new one left open.
func leakedFDs(before, after map[int]string) []string {
	var leaked []string
	for _, fd := range slices.Sorted(maps.Keys(after)) {
		target := after[fd]
		if before[fd] == target || ownedByRuntime(target) {
			continue
		}
		leaked = append(leaked, fmt.Sprintf("%d %s%s", fd, target, describeFD(fd)))
	}
	return leaked
}

// ownedByRuntime recognizes files that the Go runtime may open at any time: it watches the cgroup's
// CPU limit to adjust GOMAXPROCS.
func ownedByRuntime(target string) bool {
	return strings.HasPrefix(target, "/sys/fs/cgroup/") || strings.HasPrefix(target, "/proc/self/")
}

// onlyPipes reports whether all lines of leakedFDs are about pipes.
func onlyPipes(leaked []string) bool {
	for _, line := range leaked {
		if !strings.Contains(line, " pipe:[") {
			return false
		}
	}
	return true
}
