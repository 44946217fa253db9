package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ (.*)$`)
	// notInAnchor matches the characters of a heading that its anchor is without.
	notInAnchor = regexp.MustCompile(`[^\w\- ]`)
)

// links: the links of documents to files and headings of this project lead there.
func links(t *testing.T, tr *tree) {
	anchors := tr.anchors()
	tr.eachLink(func(at, name, target string) {
		if strings.Contains(target, "://") {
			return
		}
		file, anchor, _ := strings.Cut(target, "#")
		if file = path.Join(path.Dir(name), file); strings.HasPrefix(target, "#") {
			file = name
		}
		if _, err := os.Stat(filepath.Join(tr.root, filepath.FromSlash(file))); err != nil {
			t.Errorf("%s: the link leads to %s, which isn't there; correct it", at, file)
		} else if anchor != "" && !slices.Contains(anchors[file], anchor) {
			t.Errorf("%s: %s has no heading %q; it has %q", at, file, anchor, anchors[file])
		}
	})
}

// listOfExamples: the README has a line for each example.
func listOfExamples(t *testing.T, tr *tree) {
	var linked []string
	tr.eachLink(func(_, name, target string) {
		if name == "README.md" {
			linked = append(linked, target)
		}
	})
	for _, f := range tr.files {
		if isIn(f.name, "examples") && path.Base(f.name) == "main.go" && !slices.Contains(linked, f.name) {
			t.Errorf("%s: README.md does not list the example; add a line with a link", f.name)
		}
	}
}

// eachLink calls visit with every link of the documents.
func (tr *tree) eachLink(visit func(at, name, target string)) {
	for _, s := range tr.documents() {
		for _, found := range link.FindAllStringSubmatch(s.text, -1) {
			name, _, _ := strings.Cut(s.at, ":")
			visit(s.at, name, found[1])
		}
	}
}

// anchors returns the anchors that GitHub gives the headings of each document.
func (tr *tree) anchors() map[string][]string {
	all := make(map[string][]string)
	for _, s := range tr.documents() {
		if found := heading.FindStringSubmatch(s.text); found != nil {
			name, _, _ := strings.Cut(s.at, ":")
			anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")
			all[name] = append(all[name], anchor)
		}
	}
	return all
}
