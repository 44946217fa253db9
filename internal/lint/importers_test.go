package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// theirs are an importer's versions of modules. Percore's tests and programs use newer
// ones.
var theirs = []string{
	"golang.org/x/net v0.26.0",
	"golang.org/x/text v0.16.0",
	"google.golang.org/grpc v1.65.0",
	"google.golang.org/protobuf v1.34.1",
}

// TestImportersKeepVersions: a module that imports percore and httpadapter keeps its
// own versions of everything that percore's tests and programs use besides, and its
// module graph gains percore and the root's requirements only.
func TestImportersKeepVersions(t *testing.T) {
	tr := loadTree(t)
	im := newImporter(t, theirs...)
	im.write("main.go", `package main

import (
	"net/http"

	"`+modulePath+`"
	"`+modulePath+`/adapters/httpadapter"
)

func main() {
	ln, _ := percore.Listen("tcp", ":0")
	httpadapter.Wrap(&http.Server{}).Serve(ln)
}
`)
	im.goCommand("mod", "edit", "-require="+modulePath+"@v0.0.0", "-replace="+modulePath+"="+tr.root)

	want := append([]string{"importer", modulePath + " v0.0.0 => " + tr.root}, theirs...)
	for _, r := range tr.readModFile(t, "mod", "go.mod").Require {
		want = append(want, r.Path+" "+r.Version)
	}
	got := strings.Split(strings.TrimSpace(im.goCommand("list", "-m", "all")), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got the modules %q, want %q", got, want)
	}
}

// TestPreviousRelease: the modules of the release before that importers combine with percore compile
// with this percore. It can't be the other way around, since a module requires percore of its own
// release. PERCORE_PREVIOUS names another commit than that of the newest tag.
func TestPreviousRelease(t *testing.T) {
	tr := loadTree(t)
	previous := os.Getenv("PERCORE_PREVIOUS")
	if previous == "" {
		tag, err := exec.Command("git", "-C", tr.root, "describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^").Output()
		if err != nil {
			t.Skip("there is no release before this commit; PERCORE_PREVIOUS=COMMIT compares with another one")
		}
		previous = strings.TrimSpace(string(tag))
	}
	old := checkOut(t, tr.root, previous)
	for _, module := range []string{"adapters/grpcadapter", "metrics/prometheus"} {
		buildWith(t, filepath.Join(old, module), tr.root)
	}
}

// checkOut writes a commit's files into a temporary folder. The repository's own work tree and index
// stay as they are.
func checkOut(t *testing.T, repository, commit string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("git", "--work-tree="+dir, "checkout", commit, "--", ".")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(t.TempDir(), "index"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git checkout %s: %v: %s", commit, err, out)
	}
	return dir
}

// buildWith compiles the module in dir with percore from another folder.
func buildWith(t *testing.T, dir, percore string) {
	t.Helper()
	mod := filepath.Join(t.TempDir(), "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(filepath.Dir(mod), name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod -modfile=" + mod}
	goCommand(t, dir, env, "mod", "edit", "-replace="+modulePath+"="+percore, mod)
	goCommand(t, dir, env, "build", "./...")
}

// An importer is a foreign module, in a temporary folder, for which the go command
// finds modules in a proxy of the test's own first, then in the module cache. It has
// a module cache of its own, since the test publishes made-up versions.
type importer struct {
	t          *testing.T
	dir, proxy string
	env        []string
}

// newImporter returns a module that requires some versions, of which it publishes the
// go.mod files.
func newImporter(t *testing.T, requires ...string) *importer {
	t.Helper()
	im := &importer{t: t, dir: t.TempDir(), proxy: t.TempDir()}
	cache := strings.TrimSpace(im.goCommand("env", "GOMODCACHE"))
	proxies := []string{fileURL(im.proxy), fileURL(filepath.Join(cache, "cache", "download")), strings.TrimSpace(im.goCommand("env", "GOPROXY"))}
	im.env = []string{
		"GOPROXY=" + strings.Join(proxies, ","),
		"GOMODCACHE=" + t.TempDir(), "GOFLAGS=-mod=mod -modcacherw", "GOWORK=off",
		"GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=",
	}
	mod := "module importer\n\ngo 1.26.0\n"
	for _, r := range requires {
		module, version, _ := strings.Cut(r, " ")
		mod += "\nrequire " + r + "\n"
		im.publishFile(module, version+".mod", []byte("module "+module+"\n"))
	}
	im.write("go.mod", mod)
	return im
}

// fileURL returns the URL of a folder.
func fileURL(dir string) string {
	dir = filepath.ToSlash(dir)
	if runtime.GOOS == "windows" {
		dir = "/" + dir
	}
	return "file://" + dir
}

// write writes a file of the importer's.
func (im *importer) write(name, content string) {
	im.t.Helper()
	if err := os.WriteFile(filepath.Join(im.dir, name), []byte(content), 0o644); err != nil {
		im.t.Fatal(err)
	}
}

// publishFile writes a file that the proxy has about a module.
func (im *importer) publishFile(module, name string, data []byte) {
	im.t.Helper()
	dir := filepath.Join(im.proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		im.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		im.t.Fatal(err)
	}
}

// unpublished is the version of our modules in their requirements of each other until
// a release names one.
const unpublished = "v0.0.0-00010101000000-000000000000"

// goCommand runs the go command in the importer's folder.
func (im *importer) goCommand(args ...string) string {
	im.t.Helper()
	return string(goCommand(im.t, im.dir, im.env, args...))
}
