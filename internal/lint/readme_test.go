package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeProgram: the program in README.md builds, on package net and, with the lines of the diff, on
// percore.
func TestReadmeProgram(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```diff\n")
	diff, _, _ := strings.Cut(rest, "```\n")
	for _, side := range []string{"-", "+"} {
		var program strings.Builder
		for line := range strings.Lines(diff) {
			switch line[:1] {
			case side, " ":
				program.WriteString(line[1:])
			case "\n":
				program.WriteString(line)
			}
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "main.go")
		if err := os.WriteFile(file, []byte(program.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "program"), file)
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", side, err, out)
		}
		if !strings.Contains(program.String(), map[string]string{"-": "net.Listen", "+": "percore.Listen"}[side]) {
			t.Errorf("%s: got\n%s", side, program.String())
		}
	}
}
