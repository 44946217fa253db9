package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// modulePath is the module that this is about.
const modulePath = "github.com/percore/percore"

// tree is everything that is checked in.
type tree struct {
	root  string // the folder with go.mod
	fset  *token.FileSet
	text  []textFile
	files []*goFile
	// modules are the folders with a go.mod, longest first: a file is of the first that it is in.
	modules []string
}

// textFile is a file of any kind that people read.
type textFile struct {
	name string // from the root, with slashes
	data []byte
}

// goFile is a source file for any platform.
type goFile struct {
	name   string // from the root, with slashes
	module string // the folder of the go.mod that it belongs to
	syntax *ast.File
	build  constraint.Expr // the go:build line; nil if there is none
}

// loadTree reads the module and the modules nested in it.
func loadTree(t *testing.T) *tree {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{root: root, fset: token.NewFileSet()}
	if err := filepath.WalkDir(root, tr.visit); err != nil {
		t.Fatalf("reading the source tree: %v", err)
	}
	tr.markModules()
	if len(tr.files) < 10 {
		t.Fatalf("got %d Go files under %s, want this project's", len(tr.files), root)
	}
	return tr
}

// visit is called with each file and folder.
func (tr *tree) visit(name string, entry fs.DirEntry, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a temporary file, gone again
	}
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(tr.root, name)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	if entry.IsDir() { // in a second work tree .git is a file
		if rel == ".git" || rel == "bin" || strings.HasSuffix(rel, "/testdata/fuzz") {
			return fs.SkipDir
		}
		return nil
	}
	if !entry.Type().IsRegular() || rel == ".git" || strings.HasSuffix(rel, ".sum") || slices.Contains(built, path.Ext(rel)) {
		return nil
	}
	return tr.add(rel, name)
}

// built are the endings of files that tools leave behind and git ignores.
var built = []string{".test", ".prof", ".out"}

// add reads a file.
func (tr *tree) add(rel, name string) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil // nothing that people read
	}
	tr.text = append(tr.text, textFile{rel, data})
	if path.Ext(rel) != ".go" {
		return nil
	}
	f, err := tr.parse(rel, data)
	if err == nil {
		tr.files = append(tr.files, f)
	}
	return err
}

func (tr *tree) parse(name string, data []byte) (*goFile, error) {
	syntax, err := parser.ParseFile(tr.fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &goFile{name: name, syntax: syntax}
	for _, group := range syntax.Comments {
		for _, comment := range group.List {
			if comment.Pos() < syntax.Package && constraint.IsGoBuild(comment.Text) {
				if f.build, err = constraint.Parse(comment.Text); err != nil {
					return nil, err
				}
			}
		}
	}
	return f, nil
}

// markModules finds out which module each file belongs to.
func (tr *tree) markModules() {
	for _, f := range tr.text {
		if path.Base(f.name) == "go.mod" {
			tr.modules = append(tr.modules, path.Dir(f.name))
		}
	}
	slices.SortFunc(tr.modules, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, f := range tr.files {
		f.module = tr.moduleOf(f.dir())
	}
}

// moduleOf returns the folder of the module that a folder belongs to.
func (tr *tree) moduleOf(dir string) string {
	for _, module := range tr.modules {
		if isIn(dir, module) {
			return module
		}
	}
	return "."
}

// at is a position for people: file and line.
func (tr *tree) at(pos token.Pos) string {
	p := tr.fset.Position(pos)
	return p.Filename + ":" + strconv.Itoa(p.Line)
}

// byDir returns the files of each folder.
func (tr *tree) byDir() map[string][]*goFile {
	dirs := make(map[string][]*goFile)
	for _, f := range tr.files {
		dirs[f.dir()] = append(dirs[f.dir()], f)
	}
	return dirs
}

// dir is the folder, "." for the root.
func (f *goFile) dir() string { return path.Dir(f.name) }

// stem is the file's name without the ending of its kind: "poller_linux" for
// internal/loop/poller_linux.go and for internal/loop/poller_linux_test.go.
func (f *goFile) stem() string {
	return strings.TrimSuffix(strings.TrimSuffix(path.Base(f.name), ".go"), "_test")
}

func (f *goFile) isTest() bool  { return strings.HasSuffix(f.name, "_test.go") }
func (f *goFile) isLinux() bool { return strings.HasSuffix(f.stem(), "_linux") }
func (f *goFile) isStub() bool  { return strings.HasSuffix(f.stem(), "_stub") }

// builtWith reports whether a build for goos with these tags takes the file.
func (f *goFile) builtWith(goos string, tags ...string) bool {
	if f.isLinux() && goos != "linux" {
		return false
	}
	return f.build == nil || f.build.Eval(func(tag string) bool {
		return tag == goos || tag == "unix" && goos != "windows" || slices.Contains(tags, tag)
	})
}

// builtOn reports whether a build for goos with any tags takes the file.
func (f *goFile) builtOn(goos string) bool {
	return slices.ContainsFunc(subsets(f.tags()), func(tags []string) bool { return f.builtWith(goos, tags...) })
}

// tags returns the tags that go:build names, those of platforms aside.
func (f *goFile) tags() []string {
	var tags []string
	var collect func(constraint.Expr)
	collect = func(x constraint.Expr) {
		switch x := x.(type) {
		case *constraint.TagExpr:
			if !slices.Contains(platformTags, x.Tag) && !slices.Contains(tags, x.Tag) {
				tags = append(tags, x.Tag)
			}
		case *constraint.NotExpr:
			collect(x.X)
		case *constraint.AndExpr:
			collect(x.X)
			collect(x.Y)
		case *constraint.OrExpr:
			collect(x.X)
			collect(x.Y)
		}
	}
	collect(f.build)
	return tags
}

// platformTags are the tags that say which platform a build is for rather than how it is made.
var platformTags = []string{"linux", "darwin", "windows", "freebsd", "unix"}

// subsets returns every choice of tags, none and all included.
func subsets(tags []string) [][]string {
	all := [][]string{nil}
	for _, tag := range tags {
		for _, chosen := range all {
			all = append(all, append(slices.Clip(chosen), tag))
		}
	}
	return all
}

// imports calls visit with every import.
func (f *goFile) imports(visit func(path string, pos token.Pos)) {
	for _, spec := range f.syntax.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			visit(p, spec.Pos())
		}
	}
}

// receiver returns the name of a method's type, without pointer and type parameters.
func receiver(method *ast.FuncDecl) (name string) {
	ast.Inspect(method.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// isInternal reports whether a folder is one of internal packages.
func isInternal(dir string) bool { return slices.Contains(strings.Split(dir, "/"), "internal") }

// isIn reports whether path is elem or below it: folders or import paths.
func isIn(path, elem string) bool { return path == elem || strings.HasPrefix(path, elem+"/") }

// listed is go list's entry of a package.
type listed struct {
	ImportPath string
	Standard   bool
	Module     *struct{ Path string }
}

// deps returns the packages and everything they import, directly or not, when built for goos. It asks
// the module alone, as it is for its importers, not the workspace.
func (tr *tree) deps(t *testing.T, goos string, packages ...string) []listed {
	t.Helper()
	var all []listed
	out := tr.goCommand(t, []string{"GOOS=" + goos, "CGO_ENABLED=0", "GOWORK=off"},
		append([]string{"list", "-deps", "-json=ImportPath,Standard,Module"}, packages...)...)
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p listed
		err := d.Decode(&p)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("reading the output of go list: %v", err)
		}
		all = append(all, p)
	}
}

// goCommand runs the go command in the root and returns its output.
func (tr *tree) goCommand(t *testing.T, env []string, args ...string) string {
	t.Helper()
	return testnet.GoCommand(t, env, append([]string{"-C", tr.root}, args...)...)
}
