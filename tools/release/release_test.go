package main

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// version is the one that the test publishes.
const version = "v0.99.0"

// TestRelease makes a release of the checkout in a module proxy of its own, without workspace and
// replace lines, and builds and runs a program that imports it.
func TestRelease(t *testing.T) {
	checkout := copyCheckout(t)
	changes := filepath.Join(checkout, "CHANGELOG.md")
	text, err := os.ReadFile(changes)
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(string(text), "\n## ")
	if err := os.WriteFile(changes, []byte(before+"\n## "+version+" (unreleased)\n\n## "+after), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := prepare(checkout, version, time.Date(2031, time.May, 4, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(changes); err != nil || !strings.Contains(string(text), "\n## "+version+" (2031-05-04)\n") {
		t.Errorf("%s has no heading with the version and the date, %v", changes, err)
	}
	proxy := t.TempDir()
	for _, dir := range tagged {
		publish(t, proxy, checkout, dir)
	}
	consumer := t.TempDir()
	for _, name := range []string{"main.go", "go.mod"} {
		data, err := os.ReadFile(filepath.Join("testdata", "consumer", name+".txt"))
		if err == nil {
			err = os.WriteFile(filepath.Join(consumer, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cache := goCommand(t, ".", nil, "env", "GOMODCACHE")
	proxies := []string{fileURL(proxy), fileURL(filepath.Join(cache, "cache", "download")), goCommand(t, ".", nil, "env", "GOPROXY")}
	env := []string{
		"GOPROXY=" + strings.Join(proxies, ","), "GOMODCACHE=" + t.TempDir(),
		// -trimpath: what was compiled in one folder of modules does for the next.
		"GOFLAGS=-mod=mod -modcacherw -trimpath", "GOWORK=off", "GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=",
	}
	for _, dir := range tagged[1:3] {
		goCommand(t, consumer, env, "get", path.Join(modulePath, dir)+"@"+version)
	}
	if got, want := goCommand(t, consumer, env, "list", "-m", modulePath), modulePath+" "+version; got != want {
		t.Errorf("importers of the other modules get %q, want %q", got, want)
	}
	// The command that go install gets runs as well: percore try builds the program, as it is and with
	// the release below it.
	bin, built := t.TempDir(), t.TempDir()
	goCommand(t, consumer, append(env, "GOBIN="+bin), "install", path.Join(modulePath, installed)+"@"+version)
	run(t, consumer, env, filepath.Join(bin, "percore"), "try", "-dir", built, ".")
	for _, name := range []string{"net", "percore"} {
		if got, want := run(t, consumer, nil, filepath.Join(built, name)), "served"; got != want {
			t.Errorf("the program that imports the release, as percore try has built it (%s), printed %q, want %q", name, got, want)
		}
	}
}

// copyCheckout copies the files of the repository that git knows, or would add.
func copyCheckout(t *testing.T) (dir string) {
	t.Helper()
	root := filepath.Join("..", "..")
	list, err := exec.Command("git", "-C", root, "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("this is no checkout, run it in a clone: git ls-files: %v", err)
	}
	dir = t.TempDir()
	for _, name := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// publish puts a module's version into the proxy (https://go.dev/ref/mod#goproxy-protocol).
func publish(t *testing.T, proxy, checkout, dir string) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(checkout, dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		t.Fatal(err)
	}
	if dir == installed && len(file.Replace) > 0 {
		t.Errorf("%s has replace lines: go install refuses it", dir)
	}
	var archive bytes.Buffer
	v := module.Version{Path: path.Join(modulePath, dir), Version: version}
	if file.Module.Mod.Path != v.Path {
		t.Errorf("the module in %s is %s, want %s", dir, file.Module.Mod.Path, v.Path)
	}
	if err := zip.CreateFromDir(&archive, v, filepath.Join(checkout, dir)); err != nil {
		t.Fatalf("%s: %v", v, err)
	}
	at := filepath.Join(proxy, filepath.FromSlash(v.Path), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": []byte(`{"Version":"` + version + `"}`),
		version + ".mod":  mod,
		version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := zip.CheckZip(v, filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatalf("%s: %v", v, err)
	}
	// cmd/percore has the results of the benchmark, which importers don't need.
	isResult := func(name string) bool { return strings.Contains(name, "results/") }
	if dir != installed && slices.ContainsFunc(files.Valid, isResult) {
		t.Errorf("the download of %s has results of benchmarks", v.Path)
	}
}

// goCommand runs the go command and returns what it prints.
func goCommand(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	return run(t, dir, env, "go", args...)
}

// run runs a program and returns what it prints.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// fileURL returns the URL of a folder.
func fileURL(dir string) string {
	dir = filepath.ToSlash(dir)
	if runtime.GOOS == "windows" {
		dir = "/" + dir
	}
	return "file://" + dir
}

func TestPrepareRefuses(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1", "v1.2", "latest"} {
		if err := prepare(t.TempDir(), version, time.Now()); err == nil || !strings.Contains(err.Error(), "no version") {
			t.Errorf("%q: got %v, want that it is no version", version, err)
		}
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte("# Changelog\n\n## v1.2.3 (2026-01-01)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prepare(root, "v1.2.3", time.Now()); err == nil || !strings.Contains(err.Error(), `want one heading "## v1.2.3 (unreleased)"`) {
		t.Errorf("a version that has its date: got %v", err)
	}
}
