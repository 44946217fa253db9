//go:build !percore_net

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestUnits: systemd accepts the units of examples/systemd, and serve the arguments in them.
func TestUnits(t *testing.T) {
	folder := filepath.Join("..", "..", "examples", "systemd")
	units, err := filepath.Glob(filepath.Join(folder, "*.s[eo][rc]*"))
	if err != nil || len(units) < 3 {
		t.Fatalf("got %q, %v, want all units", units, err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var copies []string
	for _, path := range units {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		for line := range strings.Lines(text) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=/usr/local/bin/")
			if args := strings.Fields(command); ok && args[0] == "percore" {
				if _, err := parseServeFlags(args[2:], io.Discard); err != nil || args[1] != "serve" {
					t.Errorf("%s: %q: %v", path, args, err)
				}
			}
		}
		for _, program := range []string{"percore"} { // not installed here
			text = strings.ReplaceAll(text, "ExecStart=/usr/local/bin/"+program+" ", "ExecStart="+exe+" ")
			text = strings.ReplaceAll(text, "ExecStart=/usr/local/bin/"+program+"\n", "ExecStart="+exe+"\n")
		}
		to := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, to)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("the units are checked by systemd-analyze: install the package systemd (Debian)")
	}
	cmd := exec.Command(analyze, append([]string{"verify", "--man=no"}, copies...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
