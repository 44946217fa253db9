package main

import (
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// libraries are the packages whose names docs/MIGRATING.md gives, by how the tables call them.
var libraries = map[string]string{
	"gnet":      "github.com/panjf2000/gnet/v2",
	"goroutine": "github.com/panjf2000/gnet/v2/pkg/pool/goroutine",
	"nbio":      "github.com/lesismal/nbio",
	"netpoll":   "github.com/cloudwego/netpoll",
	"reactor":   "github.com/percore/percore/adapters/reactor",
	"percore":   "github.com/percore/percore",
	"loop":      "github.com/percore/percore/loop",
	"context":   "context",
	"net":       "net",
}

// migrating is the document that this checks.
var migrating = filepath.Join("..", "..", "..", "docs", "MIGRATING.md")

// TestNames looks up each name in the tables of docs/MIGRATING.md: those of the left column in the
// library that the table's head names, those of the right in package reactor. Another package's
// names have its name in front.
func TestNames(t *testing.T) {
	apis := load(t)
	checked := map[string]int{}
	for _, row := range rows(t) {
		for i, cell := range []string{row.theirs, row.ours} {
			library := []string{row.library, "reactor"}[i]
			for _, name := range names.FindAllStringSubmatch(cell, -1) {
				if err := find(apis, library, name[1]); err != nil {
					t.Errorf("line %d: %v", row.line, err)
				}
				checked[library]++
			}
		}
	}
	for library, want := range map[string]int{"gnet": 20, "nbio": 15, "netpoll": 15, "reactor": 40} {
		if checked[library] < want {
			t.Errorf("the tables have %d names of %s, want %d at least: is this the right document?", checked[library], library, want)
		}
	}
}

// TestNamesAreLookedUp gives find names that don't exist.
func TestNamesAreLookedUp(t *testing.T) {
	apis := load(t)
	for _, name := range []string{"Serve", "Conn.Write", "Handler.Data", "loop.Config.Loops", "Conn.RemoteAddr"} {
		if err := find(apis, "reactor", name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"Serv", "Conn.write", "Conn.Writ", "loop.Config.Loop", "loops.Config", "Serve.Conn"} {
		if find(apis, "reactor", name) == nil {
			t.Errorf("found %s, which does not exist", name)
		}
	}
}

// TestExcerpts looks for the Go code of docs/MIGRATING.md in the programs of folder migrate.
func TestExcerpts(t *testing.T) {
	var programs strings.Builder
	files, err := filepath.Glob("migrate/*/*/main.go")
	if err != nil || len(files) != 6 {
		t.Fatalf("got %d programs, %v, want 6", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		programs.Write(text)
	}
	_, parts, found := strings.Cut(document(t), "```go\n")
	if !found {
		t.Fatal("found no excerpt")
	}
	for excerpt := range strings.SplitSeq(parts, "```go\n") {
		code, _, _ := strings.Cut(excerpt, "```")
		if !strings.Contains(programs.String(), code) {
			t.Errorf("no program has this code:\n%s", code)
		}
	}
}

func document(t *testing.T) string {
	text, err := os.ReadFile(migrating)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// row is a line of a table.
type row struct {
	library, theirs, ours string
	line                  int
}

// names are the code in a cell.
var names = regexp.MustCompile("`([^`]*)`")

// rows returns the lines of the tables whose head names a library.
func rows(t *testing.T) (all []row) {
	library := ""
	for i, line := range strings.Split(document(t), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		if len(cells) != 2 || !strings.HasPrefix(line, "|") {
			library = ""
			continue
		}
		left, right := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1])
		if right == "reactor" && libraries[left] != "" {
			library = left
		} else if library != "" {
			all = append(all, row{library, left, right, i + 1})
		}
	}
	return all
}

// load returns the packages by their names in the tables.
func load(t *testing.T) map[string]*types.Package {
	var paths []string
	for _, path := range libraries {
		paths = append(paths, path)
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedTypes, Context: t.Context()}, paths...)
	if err != nil {
		t.Fatal(err)
	}
	byPath := make(map[string]*types.Package)
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			t.Fatal(p.Errors[0])
		}
		byPath[p.PkgPath] = p.Types
	}
	apis := make(map[string]*types.Package)
	for name, path := range libraries {
		apis[name] = byPath[path]
	}
	return apis
}

// find looks up a name of a package, or of a member of one of its types.
func find(apis map[string]*types.Package, library, name string) error {
	parts := strings.Split(name, ".")
	if apis[parts[0]] != nil {
		library, parts = parts[0], parts[1:]
	}
	p := apis[library]
	if len(parts) < 1 || len(parts) > 2 {
		return fmt.Errorf("%s is not the name of anything in %s", name, library)
	}
	object := p.Scope().Lookup(parts[0])
	if object == nil || !object.Exported() {
		return fmt.Errorf("%s has no %s", p.Path(), parts[0])
	}
	if len(parts) == 1 {
		return nil
	}
	if _, ok := object.(*types.TypeName); !ok {
		return fmt.Errorf("%s is not a type of %s", parts[0], p.Path())
	}
	member, _, _ := types.LookupFieldOrMethod(object.Type(), true, p, parts[1])
	if member == nil || !member.Exported() {
		return fmt.Errorf("%s.%s has no %s", p.Path(), parts[0], parts[1])
	}
	return nil
}
