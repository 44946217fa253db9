// Package try builds a program twice without touching its files: as it is, and with percore below it.
//
// The second build needs no change to the program. The go command's flag -overlay replaces two files
// of net and net/http with copies in which Listen and Serve call a hook, and adds a file to the
// program's package main that imports the hook. A workspace (go.work) of its own makes the hook and
// percore's source part of the build. The hook is hook.go.txt.
package try

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/cmd/percore/internal/changedgo"
)

// The hooks of net and net/http's servers, of its client, and of grpc-go.
var (
	//go:embed hook.go.txt
	hook string
	//go:embed hook_client.go.txt
	hookClient string
	//go:embed hook_grpc.go.txt
	hookGRPC string
)

// edits makes Listen and Serve call the hook.
var edits = []changedgo.Edit{
	{
		File: "net/dial.go",
		Old:  "func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (Listener, error) {\n",
		New: `// PercoreListen, if it takes the call, listens.
var PercoreListen func(ctx context.Context, lc *ListenConfig, network, address string) (l Listener, err error, takes bool)

func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (Listener, error) {
	if PercoreListen != nil {
		if l, err, takes := PercoreListen(ctx, lc, network, address); takes {
			return l, err
		}
	}
`,
	},
	{
		File: "net/http/server.go",
		Old:  "func (s *Server) Serve(l net.Listener) error {\n",
		New: `// PercoreServe and PercoreServeTLS, if they take the call, serve.
var (
	PercoreServe    func(s *Server, l net.Listener) (err error, takes bool)
	PercoreServeTLS func(s *Server, l net.Listener, certFile, keyFile string) (err error, takes bool)
)

func (s *Server) Serve(l net.Listener) error {
	if PercoreServe != nil {
		if err, takes := PercoreServe(s, l); takes {
			return err
		}
	}
`,
	},
	{
		File: "net/http/server.go",
		Old:  "func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {\n",
		New: `func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	if PercoreServeTLS != nil {
		if err, takes := PercoreServeTLS(s, l, certFile, keyFile); takes {
			return err
		}
	}
`,
	},
}

// editsClient make an http.Transport call its hook.
var editsClient = []changedgo.Edit{
	{
		File: "net/http/roundtrip.go",
		Old:  "	return t.roundTrip(req)\n",
		New: `	if PercoreRoundTrip != nil {
		if resp, err, takes := PercoreRoundTrip(t, req); takes {
			return resp, err
		}
	}
	return t.roundTrip(req)
`,
	},
	{
		File: "net/http/transport.go",
		Old:  "func (t *Transport) CloseIdleConnections() {\n",
		New: `// PercoreRoundTrip, if it takes the call, does it; PercoreCloseIdle is told of CloseIdleConnections.
var (
	PercoreRoundTrip func(t *Transport, req *Request) (resp *Response, err error, takes bool)
	PercoreCloseIdle func(t *Transport)
)

func (t *Transport) CloseIdleConnections() {
	if PercoreCloseIdle != nil {
		PercoreCloseIdle(t)
	}
`,
	},
}

const grpcModule = "google.golang.org/grpc"

// hookModule is the path of the module that has the hook.
const hookModule = "percore.invalid/try"

// Program is a program to build.
type Program struct {
	Package string // a directory, or an import path, with @version of any module
	Tags    string // build tags, as the go command takes them
	Client  bool   // http.DefaultTransport is percore's as well
}

// Binaries are the paths of what Build has built.
type Binaries struct{ Net, Percore string }

// Build builds p in dir, which must be empty, with the version of Go that the program's module asks for.
// An error has the go command's own words. The go command downloads the modules that percore needs.
func Build(ctx context.Context, dir string, p Program) (b Binaries, err error) {
	root, err := percoreSource(ctx, dir)
	if err != nil {
		return b, err
	}
	g := goCommand{ctx: ctx, tags: p.Tags}
	if path, version, ok := strings.Cut(p.Package, "@"); ok {
		if err := fetch(&g, filepath.Join(dir, "module"), path, version); err != nil {
			return b, err
		}
		p.Package = path
	} else if strings.HasPrefix(p.Package, ".") || filepath.IsAbs(p.Package) {
		g.dir, p.Package = p.Package, "." // whose module need not be that of the current directory
	}
	var env struct{ GOROOT, GOVERSION, GOWORK, GOFLAGS string }
	if err := g.json(&env, "env", "-json", "GOROOT", "GOVERSION", "GOWORK", "GOFLAGS"); err != nil {
		return b, err
	}
	var pkg struct {
		Dir, Name, ImportPath string
		Module                *struct{ Dir string }
	}
	if err := g.json(&pkg, "list", "-json=Dir,Name,ImportPath,Module", p.Package); err != nil {
		return b, err
	}
	switch {
	case pkg.Name != "main":
		return b, fmt.Errorf("%s is package %s; want a program, a package main", pkg.ImportPath, pkg.Name)
	case pkg.Module == nil || pkg.Module.Dir == "":
		return b, fmt.Errorf("%s belongs to no module: percore try needs a go.mod", pkg.ImportPath)
	}
	b = Binaries{Net: filepath.Join(dir, "net"), Percore: filepath.Join(dir, "percore")}
	if _, err := g.run("build", "-o", b.Net, p.Package); err != nil {
		return b, fmt.Errorf("the program as it is: %w", err)
	}

	deps, err := g.run("list", "-deps", p.Package)
	if err != nil {
		return b, err
	}
	main, hooks := filepath.Join(dir, "main.go"), filepath.Join(dir, "hook")
	files := map[string]string{
		main:                              "package main\n\nimport _ \"" + hookModule + "\"\n",
		filepath.Join(hooks, "hook.go"):   hook,
		filepath.Join(hooks, "go.mod"):    "module " + hookModule + "\n\ngo 1.26\n",
		filepath.Join(dir, "go.work.sum"): readOrNothing(filepath.Join(filepath.Dir(env.GOWORK), "go.work.sum")),
	}
	edits := edits
	if p.Client {
		files[filepath.Join(hooks, "hook_client.go")] = hookClient
		edits = slices.Concat(edits, editsClient)
	}
	modules := []string{pkg.Module.Dir, root, hooks}
	usesGRPC := slices.Contains(strings.Fields(string(deps)), grpcModule)
	if usesGRPC {
		files[filepath.Join(hooks, "hook_grpc.go")] = hookGRPC
		modules = append(modules, filepath.Join(root, "adapters", "grpcadapter"))
	}
	if err := os.Mkdir(hooks, 0o700); err != nil {
		return b, err
	}
	work, err := workspace(&g, env.GOWORK, env.GOVERSION, modules)
	if err != nil {
		return b, err
	}
	files[filepath.Join(dir, "go.work")] = work
	for file, text := range files {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return b, err
		}
	}
	added := map[string]string{filepath.Join(pkg.Dir, "zz_percore_try.go"): main}
	g.env = []string{"GOWORK=" + filepath.Join(dir, "go.work"), "GOFLAGS=" + flagsFor(env.GOFLAGS)}
	if usesGRPC {
		edit, err := editGRPC(&g, dir, work)
		if err != nil {
			return b, err
		}
		edits = append(slices.Clone(edits), edit)
	}
	if err := changedgo.Write(dir, env.GOROOT, edits, added); err != nil {
		return b, fmt.Errorf("percore try can't change the code below the program (%s): %w", env.GOVERSION, err)
	}
	named := filepath.Join(dir, "goroot")
	g.path = filepath.Join(named, "bin", "go")
	g.env = append(g.env, "GOROOT="+named, "GOTOOLCHAIN=local")
	if _, err := g.run("build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", b.Percore, pkg.ImportPath); err != nil {
		return b, fmt.Errorf("the program with percore below it: %w", err)
	}
	return b, nil
}

// percoreModule is the path of percore's module, with which that of grpcadapter begins.
const percoreModule = "github.com/percore/percore"

// percoreSource returns the directory of percore's module, with that of grpcadapter in it: the checkout
// in which this program was built, or copies in dir of the releases that go install has built it of.
func percoreSource(ctx context.Context, dir string) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..", "..", "..")
	if _, err := os.Stat(filepath.Join(root, "listener.go")); err == nil {
		return root, nil
	}
	root = filepath.Join(dir, "source")
	g := goCommand{ctx: ctx, dir: dir, env: []string{"GOWORK=off"}}
	for _, path := range []string{percoreModule, percoreModule + "/adapters/grpcadapter"} {
		version := builtOf(path)
		if version == "" {
			return "", errors.New("percore try needs percore's source: run it in a checkout, as go run ./cmd/percore try, or build it there without -trimpath")
		}
		var module struct{ Dir string }
		if err := g.json(&module, "mod", "download", "-json", path+"@"+version); err != nil {
			return "", err
		}
		if err := copyModule(filepath.Join(root, strings.TrimPrefix(path, percoreModule)), module.Dir); err != nil {
			return "", err
		}
	}
	return root, nil
}

// builtOf returns the release of a module that is in this program, or "" if it was built of other files.
func builtOf(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path && m.Replace == nil {
			return m.Version
		}
	}
	return ""
}

// fetch downloads the module of a package, and makes g work in a copy of it: the go command accepts no
// overlay in its cache.
func fetch(g *goCommand, dir, path, version string) error {
	asks := filepath.Join(dir, "asks")
	if err := os.MkdirAll(asks, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(asks, "go.mod"), []byte("module asks\n"), 0o600); err != nil {
		return err
	}
	g.dir, g.env = asks, []string{"GOWORK=off", "GOFLAGS=-mod=mod"}
	if _, err := g.run("get", path+"@"+version); err != nil {
		return err
	}
	var pkg struct{ Module struct{ Dir string } }
	if err := g.json(&pkg, "list", "-json=Module", path); err != nil {
		return err
	}
	g.dir = filepath.Join(dir, "copy")
	if err := copyModule(g.dir, pkg.Module.Dir); err != nil {
		return err
	}
	return dropLocal(g)
}

// A replacement is a replace directive of a go.mod or go.work, as the go command prints it.
type replacement struct {
	Old, New struct{ Path, Version string }
}

// dropLocal removes the replace lines of go.mod that name directories: these exist only in the module's
// repository.
func dropLocal(g *goCommand) error {
	var mod struct{ Replace []replacement }
	if err := g.json(&mod, "mod", "edit", "-json"); err != nil {
		return err
	}
	for _, r := range mod.Replace {
		old := r.Old.Path
		if r.Old.Version != "" {
			old += "@" + r.Old.Version
		}
		if r.New.Version == "" {
			if _, err := g.run("mod", "edit", "-dropreplace="+old); err != nil {
				return err
			}
		}
	}
	return nil
}

// editGRPC returns what makes grpc-go's Serve call its hook. Stop and GracefulStop need none: they end
// what Wrap serves. The workspace in dir, whose text is work, gets another name for the grpc-go that it
// uses: the go command accepts no overlay in its cache.
func editGRPC(g *goCommand, dir, work string) (edit changedgo.Edit, err error) {
	in := *g
	in.dir = dir // where there is no module: all of the workspace's count
	var module struct{ Dir, Version string }
	if err := in.json(&module, "list", "-m", "-json", grpcModule); err != nil {
		return edit, err
	}
	if module.Dir == "" { // it was not downloaded yet
		if err := in.json(&module, "mod", "download", "-json", grpcModule+"@"+module.Version); err != nil {
			return edit, err
		}
	}
	named := filepath.Join(dir, "grpc")
	work += fmt.Sprintf("replace %s => %q\n", grpcModule, named)
	edit = changedgo.Edit{
		File: filepath.Join(named, "server.go"),
		Old:  "func (s *Server) Serve(lis net.Listener) error {\n",
		New: `// PercoreServe, if it takes the call, serves.
var PercoreServe func(s *Server, lis net.Listener) (err error, takes bool)

func (s *Server) Serve(lis net.Listener) error {
	if PercoreServe != nil {
		if err, takes := PercoreServe(s, lis); takes {
			return err
		}
	}
`,
	}
	return edit, errors.Join(os.Symlink(module.Dir, named), os.WriteFile(filepath.Join(dir, "go.work"), []byte(work), 0o600))
}

// copyModule copies a module of the go command's cache, whose files and directories are not writable.
func copyModule(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
}

// workspace returns the text of a go.work: that of the program's own workspace at path, if there is one,
// and the modules in dirs.
func workspace(g *goCommand, path, version string, dirs []string) (string, error) {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "go"), " ") // devel and experiments follow a space
	var text strings.Builder
	fmt.Fprintf(&text, "go %s\n", version)
	if path != "" && path != "off" {
		var own struct {
			Use     []struct{ DiskPath string }
			Replace []replacement
		}
		if err := g.json(&own, "work", "edit", "-json", path); err != nil {
			return "", err
		}
		below := filepath.Dir(path)
		for _, use := range own.Use {
			dirs = append(dirs, absolute(below, use.DiskPath))
		}
		for _, r := range own.Replace {
			if r.New.Version == "" {
				r.New.Path = absolute(below, r.New.Path)
			}
			fmt.Fprintf(&text, "replace %s %s => %s %s\n", r.Old.Path, r.Old.Version, r.New.Path, r.New.Version)
		}
	}
	for i, dir := range dirs {
		dirs[i] = filepath.Clean(dir)
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		fmt.Fprintf(&text, "use %q\n", dir)
	}
	return text.String(), nil
}

func absolute(below, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(below, path)
}

// flagsFor returns the user's GOFLAGS without those that don't work in a workspace. All modules come
// from the cache, even if the program vendors them.
func flagsFor(flags string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(flags), func(f string) bool {
		f = strings.TrimLeft(f, "-")
		return strings.HasPrefix(f, "mod=") || strings.HasPrefix(f, "modfile=") || strings.HasPrefix(f, "overlay=")
	}), " ")
}

func readOrNothing(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// goCommand runs the go command.
type goCommand struct {
	ctx  context.Context
	path string   // "": in PATH
	dir  string   // "": the current directory
	env  []string // KEY=VALUE, added to this process's
	tags string
}

// run returns what it prints. Its complaints are in the error.
func (g *goCommand) run(args ...string) ([]byte, error) {
	path := "go"
	if g.path != "" {
		path = g.path
	}
	if g.tags != "" && (args[0] == "build" || args[0] == "list") {
		args = slices.Insert(slices.Clone(args), 1, "-tags", g.tags)
	}
	cmd := exec.CommandContext(g.ctx, path, args...)
	cmd.Dir = g.dir
	cmd.Env = append(cmd.Environ(), g.env...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(complaints.Bytes()))
	}
	return out, nil
}

func (g *goCommand) json(v any, args ...string) error {
	out, err := g.run(args...)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, v)
}

// SocketVariable is the environment variable with the path of the unix socket at which the program with
// percore below it answers Ask.
const SocketVariable = "PERCORE_TRY_SOCKET"

// State is what percore has done in a program.
type State struct {
	Stats  percore.Stats
	Others []string // the servers whose connections are not percore's to serve, and why
}

// Ask asks the program whose socket is at path.
func Ask(path string) (s State, err error) {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return s, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return s, err
	}
	return s, json.NewDecoder(c).Decode(&s)
}
