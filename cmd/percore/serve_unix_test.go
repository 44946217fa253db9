//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// Opening a named pipe waits for a writer, which may never come.
func TestRootFSRefusesNamedPipes(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	testnet.Within(t, "opening the pipe", func() {
		if _, err := (rootFS{root}).Open("/pipe"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got %v, want fs.ErrPermission", err)
		}
	})
}
