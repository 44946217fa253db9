package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// process is one line of the process list.
type process struct {
	pid, parent int
	cmdline     string
}

// processes lists the processes whose command line, with its parts separated by
// NUL, is one that is looked for.
func processes(t *testing.T, wanted func(cmdline string) bool) []process {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var ps []process
	for _, dir := range dirs {
		// A process may leave while it is looked at.
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !wanted(string(cmdline)) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		// The fields after the name, which is in parentheses: state, parent.
		var state string
		p := process{cmdline: strings.ReplaceAll(string(cmdline), "\x00", " ")}
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		if _, err := fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &p.parent); err != nil {
			t.Fatalf("%s/stat: %v", dir, err)
		}
		ps = append(ps, p)
	}
	return ps
}
