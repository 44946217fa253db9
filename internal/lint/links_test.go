package lint

import (
	"go/ast"
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

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	goFilePath = regexp.MustCompile(`^[\w./*-]+\.go$`)
	testName   = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w*`)
)

// mentions: the Go files and the tests that documents name are there. A name of a file may be a
// pattern, and leave out its folder; that of a test may be the beginning, as in -run.
func mentions(t *testing.T, tr *tree) {
	isFile := func(pattern string) bool {
		return slices.ContainsFunc(tr.files, func(f *goFile) bool {
			for _, name := range []string{f.name, path.Base(f.name)} {
				if ok, _ := path.Match(pattern, name); ok {
					return true
				}
			}
			return strings.HasSuffix(f.name, "/"+pattern)
		})
	}
	tests := tr.testNames()
	isTest := func(name string) bool {
		return slices.ContainsFunc(tests, func(test string) bool { return strings.HasPrefix(test, name) })
	}
	tr.eachLine(func(name string, number int, line string) {
		if path.Ext(name) != ".md" {
			return
		}
		for _, found := range codeSpan.FindAllStringSubmatch(line, -1) {
			if file := found[1]; goFilePath.MatchString(file) && !strings.HasPrefix(file, "net/") && !isFile(file) {
				t.Errorf("%s:%d: there is no file %s; name the one that is meant", name, number, file)
			}
		}
		for _, test := range testName.FindAllString(line, -1) {
			if !isTest(test) {
				t.Errorf("%s:%d: there is no test %s; name the one that is meant", name, number, test)
			}
		}
	})
}

// testNames returns the names of all tests, fuzz targets, benchmarks and examples.
func (tr *tree) testNames() (names []string) {
	for _, f := range tr.files {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest() && fn.Recv == nil && testName.MatchString(fn.Name.Name) {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

// listOfExamples: examples/README.md has a line for each example.
func listOfExamples(t *testing.T, tr *tree) {
	var linked []string
	tr.eachLink(func(_, name, target string) {
		if name == "examples/README.md" {
			linked = append(linked, path.Join("examples", target))
		}
	})
	for _, f := range tr.files {
		if isIn(f.name, "examples") && path.Base(f.name) == "main.go" && !slices.Contains(linked, f.name) {
			t.Errorf("%s: examples/README.md does not list the example; add a line with a link", f.name)
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
