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

// Next is the change that has all that is known of Go 1.28.
const Next = "1.28: as at its tip"

// An Edit replaces a piece of text that occurs once in a file below GOROOT/src.
type Edit struct{ File, Old, New string }

// Apply returns the text of the file with the piece replaced.
func (e Edit) Apply(text string) (string, error) {
	if n := strings.Count(text, e.Old); n != 1 {
		return "", fmt.Errorf("%s has this text %d times, want once; the change must be adapted to it:\n%s", e.File, n, e.Old)
	}
	return strings.Replace(text, e.Old, e.New, 1), nil
}

// Edits returns all edits. change is a Go expression, which has the name of the change that is in effect
// when the program runs. It may use package os, as changeos.
func Edits(change string) []Edit { return cryptoTLS(change) }

// Write makes dir/goroot, another name of goroot, and dir/overlay.json, for go build -overlay with
// GOROOT=dir/goroot and GOTOOLCHAIN=local in its environment. The overlay also has the files of more, by
// their paths: other files that have their texts. The go command keeps a toolchain that it has
// downloaded in the module cache, and accepts no overlay for files there. With another name it does.
func Write(dir, goroot string, edits []Edit, more map[string]string) error {
	named := filepath.Join(dir, "goroot")
	if err := os.Symlink(goroot, named); err != nil {
		return err
	}
	texts := make(map[string]string) // by the file
	for _, e := range edits {
		text, ok := texts[e.File]
		if !ok {
			data, err := os.ReadFile(filepath.Join(named, "src", filepath.FromSlash(e.File)))
			if err != nil {
				return err
			}
			text = string(data)
		}
		changed, err := e.Apply(text)
		if err != nil {
			return err
		}
		texts[e.File] = changed
	}
	replaced := maps.Clone(more)
	if replaced == nil {
		replaced = make(map[string]string)
	}
	for file, text := range texts {
		changed := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return err
		}
		replaced[filepath.Join(named, "src", filepath.FromSlash(file))] = changed
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), data, 0o600)
}
