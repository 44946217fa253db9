package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/percore/percore/cmd/percore/internal/bench/example"
	"github.com/percore/percore/cmd/percore/internal/bench/page"
	"github.com/percore/percore/cmd/percore/internal/bench/report"
)

// TestRun: the page of a file is that of the measurements which were written to it.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.JSON(f, example.Report()); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var got, want bytes.Buffer
	if err := run([]string{path}, &got); err != nil {
		t.Fatal(err)
	}
	if err := page.HTML(&want, example.Report()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("got a page of %d bytes from the file, want the one of %d bytes from memory", got.Len(), want.Len())
	}
}

// TestPicture: the README's picture is what the recorded tables come to.
func TestPicture(t *testing.T) {
	recorded := filepath.Join("..", "results", "amd-epyc.txt")
	var got bytes.Buffer
	if err := run([]string{"-picture", "2026-11-29-amd-readme", recorded}, &got); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "cpu.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("docs/cpu.svg has %d bytes other than the %d that are drawn now: draw it again, see main.go", len(want), got.Len())
	}
	for _, p := range pictured {
		if !strings.Contains(got.String(), p.name) {
			t.Errorf("there is no bar %q", p.name)
		}
	}
	got.Reset()
	if err := run([]string{"-picture", "2026-11-22-amd-idle", recorded}, &got); err == nil || !strings.Contains(err.Error(), "2026-11-22-amd-idle") {
		t.Errorf("a section about something else: got %v", err)
	}
}

func TestRunErrors(t *testing.T) {
	noJSON := filepath.Join(t.TempDir(), "bench.txt")
	if err := os.WriteFile(noJSON, []byte("http/keepalive"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "name one file"},
		{[]string{"-picture", "no such", noJSON}, `no section "no such"`},
		{[]string{noJSON, noJSON}, "name one file"},
		{[]string{noJSON + ".missing"}, "no such file"},
		{[]string{noJSON}, "is not a file of percore bench -json"},
	} {
		if err := run(c.args, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got the error %v, want one with %q", c.args, err, c.want)
		}
	}
}
