package lint

import (
	"encoding/json"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestRules(t *testing.T) {
	tr := loadTree(t)
	for _, rule := range []struct {
		name  string
		check func(*testing.T, *tree)
	}{
		{"import direction", importDirection},
		{"module boundary", moduleBoundary},
		{"what importers get", whatImportersGet},
		{"homes of dependencies", homesOfDependencies},
		{"requirements", requirements},
		{"workspace", workspace},
		{"epoll", epollHasOneHome},
		{"platforms", platforms},
		{"build tags", buildTags},
		{"fallback tag", fallbackTag},
		{"package comments", packageComments},
		{"doc comments", docComments},
		{"signatures", signatures},
		{"leak checks", leakChecks},
		{"wrappers", wrappers},
		{"nil arguments", nilArguments},
		{"loose ends", looseEnds},
		{"machine paths", machinePaths},
		{"links", links},
		{"mentions", mentions},
		{"quoted names", quotedNames},
		{"list of examples", listOfExamples},
		{"language", language},
		{"wrapping", wrapping},
	} {
		t.Run(rule.name, func(t *testing.T) { rule.check(t, tr) })
	}
}

// A layer is a folder of packages and the layers that it may import besides
// itself. Layers that are not listed must not be imported.
type layer struct {
	dir  string
	uses []string
}

// layers is the import direction: adapters → internal/serving → root → {loop, zerocopy, pool} →
// internal/{loop, zerocopy, pool} → the rest of internal. The programs on top may use everything
// below, and nothing uses them.
var layers = []layer{
	{"internal/shared", nil}, // also of other modules: see sharedInternal
	{"internal/loop", []string{"internal"}},
	{"internal/zerocopy", []string{"internal"}},
	{"internal/pool", []string{"internal"}},
	{"internal/seam", []string{"internal/loop", "internal"}},
	{"internal/tlsread", []string{"internal/loop"}},
	{"internal/serving", []string{".", "internal/loop", "internal/seam", "internal/tlsread", "internal"}},
	{"internal", nil},
	{"loop", []string{"internal/loop"}},
	{"zerocopy", []string{"internal"}},
	{"pool", []string{"internal/pool"}},
	{".", []string{"loop", "zerocopy", "pool", "internal/loop", "internal/zerocopy", "internal/pool", "internal/seam", "internal"}},
	{"admission", []string{".", "internal/serving", "internal/shared", "internal"}},
	{"adapters/h2", []string{".", "internal/serving", "internal/shared", "internal/pool", "internal/seam", "internal/tlsread", "internal"}},
	{"adapters/httpadapter/internal/semantics", []string{"adapters/h2"}}, // for the errors of streams
	{"adapters/httpadapter/internal/http1", []string{"adapters/httpadapter/internal/semantics", "internal/pool", "internal"}},
	{"adapters/httpadapter/internal/h1", []string{".", "adapters/httpadapter/internal/semantics", "adapters/httpadapter/internal/http1", "internal/serving", "internal/shared", "internal/loop", "internal/pool", "internal/seam", "internal"}},
	{"adapters/httpadapter", []string{".", "internal/shared", "adapters/httpadapter/internal/semantics", "adapters/httpadapter/internal/http1", "adapters/httpadapter/internal/h1", "admission", "adapters/h2", "pool", "internal/serving", "internal/loop", "internal/pool", "internal/seam", "internal/tlsread", "internal"}},
	{"adapters/grpcadapter", []string{".", "internal/shared", "admission", "adapters/h2", "pool"}},
	{"adapters/reactor", []string{".", "pool", "internal/serving", "internal/shared", "internal/loop", "internal/zerocopy", "internal/pool", "internal/seam", "internal/tlsread", "internal"}},
	{"adapters/wsadapter/moving", []string{".", "adapters/wsadapter", "handover", "internal"}},
	{"adapters/wsadapter", []string{".", "internal"}},
	{"handover", []string{".", "loop", "internal/seam", "internal"}},
	{"tlsfiles", []string{"."}},
	{"debug", []string{".", "loop"}},
	{"metrics/tcpinfo", []string{".", "internal/seam"}},
	{"metrics/prometheus", []string{".", "loop", "zerocopy", "pool"}},
	{"cmd", []string{".", "admission", "loop", "zerocopy", "pool", "adapters/h2", "adapters/httpadapter", "adapters/grpcadapter", "adapters/reactor", "adapters/wsadapter", "adapters/wsadapter/moving", "debug", "handover", "metrics/prometheus", "metrics/tcpinfo", "tlsfiles"}},
	{"conformance_test", nil}, // has tests only, which may use everything
}

// layerOf returns the layer that a folder belongs to, or nil.
func layerOf(dir string) *layer {
	for i, l := range layers {
		if dir == l.dir || l.dir != "." && isIn(dir, l.dir) {
			return &layers[i]
		}
	}
	return nil
}

// importDirection: a package imports only the layers below its own. Tests may import everything:
// Go itself refuses cycles.
func importDirection(t *testing.T, tr *tree) {
	for _, f := range tr.files {
		if modules[f.module].free {
			continue
		}
		from := layerOf(f.dir())
		if from == nil {
			t.Errorf("%s: the folder is in no layer; add it to layers, with what it may import", f.name)
			continue
		}
		if f.isTest() {
			continue
		}
		f.imports(func(p string, pos token.Pos) {
			dir, ok := localDir(p)
			if !ok {
				return
			}
			if isIn(dir, "internal/testnet") && !isIn(f.dir(), "internal/testnet") {
				t.Errorf("%s: only tests may import internal/testnet, which brings package testing with it", tr.at(pos))
			}
			if to := layerOf(dir); to == nil || to != from && !slices.Contains(from.uses, to.dir) {
				t.Errorf("%s: %s must not import %s; it may import %q. Move what is needed down, or hand it in from above",
					tr.at(pos), from.dir, dir, from.uses)
			}
		})
	}
}

// sharedInternal is the folder of the internal packages that other modules may use, too: what keeps
// those of different versions together is in docs/decisions/shared-code.md.
const sharedInternal = "internal/shared"

// moduleBoundary: a module stands on the public names of others, because a program may combine its
// version with another version of theirs, whose internal packages have changed. Tests are built in
// this repository alone, so they may import internal/testnet and look inside.
func moduleBoundary(t *testing.T, tr *tree) {
	for _, f := range tr.files {
		if f.isTest() {
			continue
		}
		f.imports(func(p string, pos token.Pos) {
			dir, ok := localDir(p)
			if !ok || !isInternal(dir) || isIn(dir, sharedInternal) {
				return
			}
			if m := tr.moduleOf(dir); m != f.module && m != modules[f.module].partOf {
				t.Errorf("%s: %s is an internal package of another module; use a public name, or add one", tr.at(pos), p)
			}
		})
	}
}

// localDir returns the folder of a package, or of a module, of this repository.
func localDir(importPath string) (dir string, ok bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// importers are the packages that programs import, with the packages of the standard library
// that must not come along.
var importers = []struct{ packages, banned []string }{
	{[]string{".", "./loop", "./zerocopy", "./pool"}, []string{"net/http", "testing", "flag", "expvar"}},
	{[]string{"./admission", "./adapters/h2", "./adapters/reactor", "./handover", "./metrics/tcpinfo", "./tlsfiles"}, []string{"net/http", "testing", "flag", "expvar"}},
	{[]string{"./adapters/httpadapter", "./adapters/wsadapter", "./adapters/wsadapter/moving", "./debug"}, []string{"testing", "flag", "expvar"}},
}

// whatImportersGet: importing percore, one of the packages under it, or httpadapter brings
// in the standard library and these modules, and neither the testing flags nor, except by
// httpadapter, an HTTP server.
func whatImportersGet(t *testing.T, tr *tree) {
	linked := []string{modulePath, "golang.org/x/sys", "github.com/valyala/bytebufferpool"}
	for _, goos := range []string{"linux", "darwin", "windows", "freebsd"} {
		for _, im := range importers {
			for _, p := range tr.deps(t, goos, im.packages...) {
				switch {
				case p.Standard && slices.Contains(im.banned, p.ImportPath):
					t.Errorf("importing %q on %s brings in %s, which its users don't need; find its importer by: go mod why %s",
						im.packages, goos, p.ImportPath, p.ImportPath)
				case !p.Standard && (p.Module == nil || !slices.Contains(linked, p.Module.Path)):
					t.Errorf("importing %q on %s brings in %s, which is of none of the modules %q; move the code that needs it to another module, or to a test",
						im.packages, goos, p.ImportPath, linked)
				}
			}
		}
	}
}

// homes are the modules of others that a single file wraps, so that another can be put in
// their place there. The list of modules says which ones may be required at all.
var homes = map[string]string{
	"github.com/HdrHistogram/hdrhistogram-go": "cmd/percore/internal/bench/load/latency.go",
	"github.com/prometheus/client_golang":     "metrics/prometheus/collector.go",
	"github.com/jhump/protoreflect/v2":        "cmd/percore/internal/try/reflect.go",
	"github.com/tidwall/redcon":               "cmd/percore/internal/bench/target/app.go",
	"github.com/valyala/bytebufferpool":       "internal/pool/growable.go",
	"github.com/valyala/fasthttp":             "cmd/percore/internal/bench/target/fasthttp.go",
	"go.uber.org/goleak":                      "internal/testnet/main.go",
}

// homesOfDependencies: a module that has a home is imported there, and in tests.
func homesOfDependencies(t *testing.T, tr *tree) {
	used := make(map[string]bool)
	for _, f := range tr.files {
		if f.isTest() || modules[f.module].free {
			continue
		}
		f.imports(func(p string, pos token.Pos) {
			for module, home := range homes {
				if isIn(p, module) && f.name != home {
					t.Errorf("%s: only %s may import %s; give it a function for what is needed", tr.at(pos), home, module)
				}
				used[module] = used[module] || isIn(p, module)
			}
		})
	}
	for module, home := range homes {
		if !used[module] {
			t.Errorf("%s does not import %s; take it out of homes", home, module)
		}
	}
}

// A module is one of this repository's.
type module struct {
	requires []string // directly, ours aside
	free     bool     // it may require and import anything: no package of ours imports it
	partOf   string   // the module whose internal packages it may use: both are built here alone
}

// modules are the modules by their folders. The requirements of the root, and of no other module, get
// into the module graph of a program that imports percore or httpadapter.
var modules = map[string]module{
	".":                    {requires: []string{"github.com/valyala/bytebufferpool", "go.uber.org/goleak", "golang.org/x/sys"}},
	"adapters/grpcadapter": {requires: []string{"golang.org/x/sys", "google.golang.org/grpc", "google.golang.org/protobuf"}},
	"cmd/percore": {requires: []string{
		"github.com/HdrHistogram/hdrhistogram-go",
		"github.com/gorilla/websocket", "github.com/jhump/protoreflect/v2", "github.com/prometheus/procfs", "github.com/tidwall/redcon", "github.com/valyala/fasthttp",
		"golang.org/x/net", "golang.org/x/sync", "golang.org/x/sys",
		"google.golang.org/grpc", "google.golang.org/protobuf",
	}},
	"conformance_test": {requires: []string{
		"golang.org/x/net", "golang.org/x/sys", "google.golang.org/grpc",
	}},
	"metrics/alerts":               {free: true},
	"metrics/prometheus":           {requires: []string{"github.com/prometheus/client_golang"}},
	"cmd/percore/peers":            {free: true, partOf: "cmd/percore"},
	"conformance_test/clients":     {free: true},
	"conformance_test/connect":     {free: true},
	"conformance_test/frameworks":  {free: true},
	"conformance_test/grpcinterop": {free: true},
	"conformance_test/h2spec":      {free: true},
	"examples":                     {free: true},
	"examples/caddy":               {free: true},
	"examples/cluster":             {free: true},
	"examples/httparena":           {free: true},
	"examples/kubernetes":          {free: true},
	tools:                          {free: true},
}

// tools is the module of the tools, the only one that is not in the workspace: the
// workspace would choose other versions for them than their go.mod does.
const tools = "tools"

// modFile is the output of go mod edit -json and go work edit -json, as far as the rules read it.
type modFile struct {
	Module  struct{ Path string }
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct{ Old, New struct{ Path string } }
	Exclude []struct{ Path string }
	Use     []struct{ DiskPath string }
}

// readModFile reads a go.mod or go.work.
func (tr *tree) readModFile(t *testing.T, kind, name string) modFile {
	t.Helper()
	var mod modFile
	if err := json.Unmarshal([]byte(tr.goCommand(t, nil, kind, "edit", "-json", name)), &mod); err != nil {
		t.Fatalf("reading the output of go %s edit -json %s: %v", kind, name, err)
	}
	return mod
}

// requirements: each module requires directly the modules in modules, and takes those of
// ours from this checkout, with and without the workspace, unless they are released.
func requirements(t *testing.T, tr *tree) {
	root := tr.readModFile(t, "mod", "go.mod")
	if len(root.Replace)+len(root.Exclude) > 0 {
		t.Errorf("go.mod: it must neither replace nor exclude: that has no effect for importers")
	}
	for dir := range modules {
		if !slices.Contains(tr.modules, dir) {
			t.Errorf("%s: it has no go.mod; take it out of modules", dir)
		}
	}
	for _, dir := range tr.modules {
		name := path.Join(dir, "go.mod")
		mod := tr.readModFile(t, "mod", name)
		m, ok := modules[dir]
		if !ok {
			t.Errorf("%s: the module is not in modules; add it there, with what it may require", name)
		}
		if want := path.Join(modulePath, dir); mod.Module.Path != want {
			t.Errorf("%s: got module %s, want %s", name, mod.Module.Path, want)
		}
		if mod.Go != root.Go {
			t.Errorf("%s: got go %s, want the root's, %s", name, mod.Go, root.Go)
		}
		var direct []string
		for _, r := range mod.Require {
			ours, isOurs := localDir(r.Path)
			switch {
			case isOurs:
				rel, err := filepath.Rel(dir, ours)
				if err != nil || r.Version == unpublished && !replaces(mod, r.Path, filepath.ToSlash(rel)) {
					t.Errorf("%s: it must replace %s by %s: there is no such version", name, r.Path, rel)
				}
			case !r.Indirect:
				direct = append(direct, r.Path)
			case dir == ".":
				t.Errorf("%s: got the indirect requirement of %s, want none: it weighs on importers of percore", name, r.Path)
			}
		}
		if slices.Sort(direct); !m.free && !slices.Equal(direct, m.requires) {
			t.Errorf("%s: got the direct requirements %q, want %q; do without, move what needs it to another module, or change modules", name, direct, m.requires)
		}
	}
}

// unpublished is the version of our modules in their requirements of each other until a release names
// one.
const unpublished = "v0.0.0-00010101000000-000000000000"

// replaces reports whether a module is replaced by a folder.
func replaces(mod modFile, module, folder string) bool {
	return slices.ContainsFunc(mod.Replace, func(r struct{ Old, New struct{ Path string } }) bool {
		return r.Old.Path == module && r.New.Path == folder
	})
}

// workspace: go.work has all modules but the tools, so that one command tests all.
func workspace(t *testing.T, tr *tree) {
	work := tr.readModFile(t, "work", "go.work")
	var got []string
	for _, use := range work.Use {
		got = append(got, path.Clean(use.DiskPath))
	}
	want := slices.DeleteFunc(slices.Clone(tr.modules), func(dir string) bool { return dir == tools })
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("go.work: got the modules %q, want %q", got, want)
	}
	if root := tr.readModFile(t, "mod", "go.mod"); work.Go != root.Go {
		t.Errorf("go.work: got go %s, want the root's, %s", work.Go, root.Go)
	}
}

// kernelEpoll matches the names of the kernel's epoll in packages sys and unix.
var kernelEpoll = regexp.MustCompile(`EPOLL|^Epoll`)

// epollHasOneHome: one file knows how the kernel is asked for events. The seam
// offers it the calls, and tests may look behind both.
func epollHasOneHome(t *testing.T, tr *tree) {
	for _, f := range tr.files {
		if f.isTest() || f.name == "internal/loop/poller_linux.go" || isIn(f.dir(), "internal/sys") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && kernelEpoll.MatchString(id.Name) {
				t.Errorf("%s: %s: only internal/loop/poller_linux.go deals with epoll; give it a method for what is needed", tr.at(id.Pos()), id.Name)
			}
			return true
		})
	}
}

// platforms: _linux.go for code that needs Linux, _stub.go for the rest. Every folder
// with the one has the other.
func platforms(t *testing.T, tr *tree) {
	others := []string{"darwin", "windows", "freebsd"}
	for _, f := range tr.files {
		onLinux, elsewhere := f.builtOn("linux"), 0
		for _, goos := range others {
			if f.builtOn(goos) {
				elsewhere++
			}
		}
		switch {
		case f.isLinux():
			if !onLinux {
				t.Errorf("%s: it is never built on Linux; its go:build line contradicts its name", f.name)
			}
		case f.isStub():
			if f.builtWith("linux") || elsewhere < len(others) {
				t.Errorf("%s: it must be built on everything but Linux: //go:build !linux", f.name)
			}
		case strings.HasSuffix(f.stem(), "_unix") && f.isTest():
			// Tests of things that Windows does not have.
		case !onLinux || elsewhere < len(others):
			t.Errorf("%s: it is built on some platforms only; name it _linux.go or _stub.go", f.name)
		}
		if i := strings.LastIndex(f.stem(), "_"); i >= 0 && slices.Contains(otherSuffixes, f.stem()[i+1:]) {
			t.Errorf("%s: Go builds it on %s only, for its name; there are _linux.go and _stub.go", f.name, f.stem()[i+1:])
		}
		f.imports(func(p string, pos token.Pos) {
			if p == "golang.org/x/sys/unix" && !f.isLinux() {
				t.Errorf("%s: %s may be imported in _linux.go files only", tr.at(pos), p)
			}
		})
	}
	for dir, files := range tr.byDir() {
		has := func(kind func(*goFile) bool) bool {
			return slices.ContainsFunc(files, func(f *goFile) bool { return kind(f) && !f.isTest() })
		}
		if has((*goFile).isLinux) && !has((*goFile).isStub) {
			t.Errorf("%s: it has a _linux.go file and no _stub.go, so nothing is there in its place elsewhere", dir)
		}
	}
}

// otherSuffixes are the ends of names, besides _linux, by which Go chooses files.
var otherSuffixes = []string{
	"darwin", "windows", "freebsd", "netbsd", "openbsd", "dragonfly", "solaris", "illumos", "aix", "plan9", "js", "wasip1", "android", "ios",
	"386", "amd64", "arm", "arm64", "riscv64", "loong64", "ppc64", "ppc64le", "s390x", "mips", "mipsle", "mips64", "mips64le", "wasm",
}

// buildTags: a mistyped tag takes a file out of every build without a word, so
// there are these and no others.
func buildTags(t *testing.T, tr *tree) {
	known := map[string]string{
		"race":           "the race detector",
		"invariants":     "checks for misuse",
		"percore_faults": "system calls that fail on demand",
		"percore_net":    "package net in place of the engine",
		"go1.27":         "a version of Go whose net/http differs",
		"go1.28":         "a version of Go that may lack a private function",
	}
	for _, f := range tr.files {
		for _, tag := range f.tags() {
			if known[tag] == "" {
				t.Errorf("%s: there is no build tag %q; the tags are %v", f.name, tag, known)
			}
		}
	}
}

// fallbackTag: where the tag percore_net counts, it does on Linux exactly the same as another platform.
func fallbackTag(t *testing.T, tr *tree) {
	const tag = "percore_net"
	counts := 0
	for _, files := range tr.byDir() {
		if !slices.ContainsFunc(files, func(f *goFile) bool { return slices.Contains(f.tags(), tag) }) {
			continue
		}
		counts++
		for _, f := range files {
			for _, tags := range subsets(f.tags()) {
				got, want := f.builtWith("linux", append(slices.Clip(tags), tag)...), f.builtWith("darwin", tags...)
				if got != want {
					t.Errorf("%s: got built on Linux with the tags %s %v: %t, want as elsewhere, %t: //go:build !%s in _linux files, !linux || %s in _stub files",
						f.name, tag, tags, got, want, tag, tag)
				}
			}
		}
	}
	if counts == 0 {
		t.Errorf("no file names the build tag %s, which .ci/run tests with", tag)
	}
}

// packageComments: every package says its purpose, in a file that is always
// built, so that go doc shows it on every platform.
func packageComments(t *testing.T, tr *tree) {
	for dir, files := range tr.byDir() {
		if !slices.ContainsFunc(files, func(f *goFile) bool {
			return !f.isTest() && !f.isLinux() && f.build == nil && f.syntax.Doc.Text() != ""
		}) {
			t.Errorf("%s: no package comment in a file without build constraints; add a doc.go", dir)
		}
	}
}

// docComments: exported identifiers are documented, methods of exported types
// included, in every package and for every platform.
func docComments(t *testing.T, tr *tree) {
	for _, f := range tr.files {
		if f.isTest() || ast.IsGenerated(f.syntax) {
			continue
		}
		for _, decl := range f.syntax.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() && receiverIsExported(decl) && decl.Doc.Text() == "" {
					t.Errorf("%s: %s has no doc comment", tr.at(decl.Pos()), decl.Name.Name)
				}
			case *ast.GenDecl:
				for _, name := range undocumented(decl) {
					t.Errorf("%s: %s has no doc comment", tr.at(name.Pos()), name.Name)
				}
			}
		}
	}
}

// receiverIsExported reports whether a function is one of the package, or a method of an exported type.
func receiverIsExported(decl *ast.FuncDecl) bool {
	return decl.Recv == nil || ast.IsExported(receiver(decl))
}

// undocumented returns the exported names of a declaration that neither have a
// comment, before or behind, nor are in a group that has one.
func undocumented(decl *ast.GenDecl) []*ast.Ident {
	var names []*ast.Ident
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if decl.Doc.Text()+spec.Doc.Text()+spec.Comment.Text() == "" {
				names = append(names, spec.Name)
			}
		case *ast.ValueSpec:
			if decl.Doc.Text()+spec.Doc.Text()+spec.Comment.Text() == "" {
				names = append(names, spec.Names...)
			}
		}
	}
	return slices.DeleteFunc(names, func(name *ast.Ident) bool { return !name.IsExported() })
}

// leakChecks: wherever there are tests, TestMain fails them for a leaked
// goroutine or descriptor. The module of the tools has no access to testnet.
func leakChecks(t *testing.T, tr *tree) {
	for dir, files := range tr.byDir() {
		if isIn(dir, "tools") {
			continue
		}
		hasTests, hasCheck := false, false
		for _, f := range files {
			hasTests = hasTests || f.isTest()
			hasCheck = hasCheck || f.isTest() && f.build == nil && !f.isLinux() && checksLeaks(f)
		}
		if hasTests && !hasCheck {
			t.Errorf("%s: its tests don't fail on a leak; add func TestMain(m *testing.M) { testnet.Main(m) } to a file without build constraints", dir)
		}
	}
}

// checksLeaks reports whether a file has a TestMain that calls testnet.Main.
func checksLeaks(f *goFile) bool {
	found := false
	for _, decl := range f.syntax.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || fn.Name.Name != "TestMain" {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				fun := types.ExprString(call.Fun)
				found = found || fun == "testnet.Main" || fun == "Main" && f.dir() == "internal/testnet"
			}
			return true
		})
	}
	return found
}

// looseEnds: unfinished work is an issue, not a comment without a reader.
func looseEnds(t *testing.T, tr *tree) {
	// Put together, so as not to find themselves.
	marker := regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "X" + "XX"}, "|") + `)\b`)
	tr.eachLine(func(name string, number int, line string) {
		if found := marker.FindString(line); found != "" {
			t.Errorf("%s:%d: %s; do it, or open an issue and take the marker out", name, number, found)
		}
	})
}

// machinePaths: no file depends on, or gives away, the folders of one machine.
func machinePaths(t *testing.T, tr *tree) {
	// The folders under which people and build machines keep their own files.
	pattern := regexp.MustCompile(`(^|[^\w./-])((/(home|Users|root|work|workspace|builds)|[A-Z]:\\Users)[/\\][\w.-]+)`)
	tr.eachLine(func(name string, number int, line string) {
		if found := pattern.FindStringSubmatch(line); found != nil {
			t.Errorf("%s:%d: %s is a path of one machine; use a path in the project or a temporary folder", name, number, found[2])
		}
		if strings.Contains(line, tr.root+"/") && path.Dir(tr.root) != "/" {
			t.Errorf("%s:%d: it names %s, where this copy of the project happens to be; use a path in the project", name, number, tr.root)
		}
	})
}

// eachLine calls visit with every line of every text file.
func (tr *tree) eachLine(visit func(name string, number int, line string)) {
	for _, f := range tr.text {
		number := 0
		for line := range strings.Lines(string(f.data)) {
			number++
			visit(f.name, number, strings.TrimRight(line, "\n"))
		}
	}
}
