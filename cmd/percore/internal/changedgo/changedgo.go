// Package changedgo changes Go's own code, for builds that are never shipped: crypto/tls, for tests,
// to what is known about Go 1.28, and net and net/http, for percore try. It replaces pieces of text
// in copies of the installed release's files. The go command's flag -overlay puts the copies in
// their place.
package changedgo

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// An Edit replaces a piece of text that occurs once in a file, at an absolute path or below GOROOT/src.
type Edit struct{ File, Old, New string }

// Write makes dir/goroot, another name of goroot, and dir/overlay.json, for go build -overlay with
// GOROOT=dir/goroot and GOTOOLCHAIN=local in its environment. The other name is for toolchains that the
// go command has downloaded: they are in the module cache, for which it accepts no overlay. more adds
// files to the overlay, by the paths that they get.
func Write(dir, goroot string, edits []Edit, more map[string]string) error {
	named := filepath.Join(dir, "goroot")
	if err := os.Symlink(goroot, named); err != nil {
		return err
	}
	texts := make(map[string]string) // by the file
	for _, e := range edits {
		file := e.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(named, "src", filepath.FromSlash(file))
		}
		if texts[file] == "" {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			texts[file] = string(data)
		}
		if n := strings.Count(texts[file], e.Old); n != 1 {
			return fmt.Errorf("%s has this text %d times, want once; the change must be adapted to it:\n%s", e.File, n, e.Old)
		}
		texts[file] = strings.Replace(texts[file], e.Old, e.New, 1)
	}
	replaced := maps.Clone(more)
	if replaced == nil {
		replaced = make(map[string]string)
	}
	for file, text := range texts {
		changed := filepath.Join(dir, fmt.Sprintf("changed%d.go", len(replaced)))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return err
		}
		replaced[file] = changed
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), data, 0o600)
}
