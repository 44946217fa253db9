package main

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorded has the tables of the README's picture, among others.
var recorded = filepath.Join("..", "results", "amd-epyc.txt")

// TestPicture: the README's picture is what the recorded tables come to.
func TestPicture(t *testing.T) {
	var got bytes.Buffer
	if err := draw(&got, "2026-11-29-amd-readme", recorded); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "cpu.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("docs/cpu.svg has %d bytes other than the %d that are drawn now: draw it again, see main.go", len(want), got.Len())
	}
	if err := xml.Unmarshal(want, new(any)); err != nil {
		t.Errorf("docs/cpu.svg is no XML: %v", err)
	}
	for _, p := range pictured {
		if !strings.Contains(got.String(), p.name) {
			t.Errorf("there is no bar %q", p.name)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ section, file, want string }{
		{"x", recorded + ".missing", "no such file"},
		{"no such", recorded, `no section "no such"`},
		{"2026-11-22-amd-idle", recorded, "2026-11-22-amd-idle does not compare"},
	} {
		if err := draw(new(bytes.Buffer), c.section, c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got the error %v, want one with %q", c.section, err, c.want)
		}
	}
}
