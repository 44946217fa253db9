package lint

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// TestDependabot: .github/dependabot.yml names the folders of all modules, sorted.
func TestDependabot(t *testing.T) {
	tr := loadTree(t)
	var want, got []string
	for _, f := range tr.text {
		switch {
		case path.Base(f.name) == "go.mod":
			want = append(want, path.Join("/", path.Dir(f.name)))
		case f.name == ".github/dependabot.yml":
			for line := range strings.Lines(string(f.data)) {
				if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "- /"); ok {
					got = append(got, "/"+dir)
				}
			}
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf(".github/dependabot.yml has the modules %q, want %q", got, want)
	}
}
