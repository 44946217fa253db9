package conformance

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/race"
)

// TestNetHTTPOwnTests runs the tests of net/http, net/http/httptest and net/http/httputil, which come
// with Go, three ways: on package net, through httpadapter, and through its fast path.
//
// It copies the part of the standard library that has them, puts percore into the copy's vendor
// directory, and changes a few lines. http.Server.Serve calls testdata/percoretest.go.txt, and
// net.Listen becomes percore's in those tests. Everything else is unchanged: requests, handlers,
// clients, and the calls of the http.Server's own methods.
//
// It runs the tests of -short mode, which takes half a minute. With PERCORE_TEST_FULL=1 it runs all
// tests.
func TestNetHTTPOwnTests(t *testing.T) {
	if percoreIsNet() {
		t.Skip("there is no engine in this build")
	}
	if testing.Short() || race.Enabled || invariants.Enabled || runtime.GOARCH == "386" {
		t.Skip("net/http is compiled once more for this, which takes a while: the plain test does it")
	}
	lib := copyNetHTTP(t)
	for _, pkg := range ownPackages {
		binary := filepath.Join(t.TempDir(), "own.test")
		if out, err := lib.goCommand("test", "-c", "-o", binary, pkg).CombinedOutput(); err != nil {
			t.Fatalf("compiling the tests of %s: %v\n%s", pkg, err, out)
		}
		for _, way := range []string{"net", "httpadapter", "fast path"} {
			t.Run(pkg+", "+way, func(t *testing.T) {
				run := ownRun{t, binary, lib, pkg, way}
				run.all()
			})
		}
	}
}

// ownPackages are the packages that test servers.
var ownPackages = []string{"net/http", "net/http/httptest", "net/http/httputil"}

// ownImpossible are the tests that can't pass with a server other than net/http's, or with a
// listener other than net's.
var ownImpossible = map[string]string{
	"TestLinuxSendfile":                         "hands its port to another process by File, which is one socket of percore's several",
	"TestTLSServerWithoutTLSConn":               "its connection in memory has a method that no socket has",
	"TestServerUnreadRequestBodyLittle":         "counts the bytes that are left in its connection in memory",
	"TestServerUnreadRequestBodyLarge":          "counts the bytes that are left in its connection in memory",
	"TestHandlerBodyClose":                      "counts the bytes that are left in its connection in memory",
	"TestHandlerFinishSkipBigContentLengthRead": "counts the bytes that are left in its connection in memory",
	"TestServerConnStateNew":                    "its connection in memory is accepted before Serve returns",
	"TestTransportPersistConnLeak":              "counts goroutines half a second after the last request; workers end after two",
	"TestTransportPersistConnLeakShortBody":     "counts goroutines half a second after the last request; workers end after two",
	"TestCmdGoNoHTTPServer":                     "compiles the go command, which is no server",
}

// ownLibrary is a copy of Go with percore in it.
type ownLibrary struct{ root string }

// goCommand prepares a call of the go command for the copy.
func (l ownLibrary) goCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOROOT="+l.root, "GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS=-mod=mod")
	return cmd
}

// copyNetHTTP makes the copy. It links the parts that don't change.
func copyNetHTTP(t *testing.T) ownLibrary {
	t.Helper()
	if version := goOutput(t, "env", "GOVERSION"); version != strings.Fields(runtime.Version())[0] {
		t.Skipf("the go command here is %s, and this is built by %s", version, runtime.Version())
	}
	from, root := goOutput(t, "env", "GOROOT"), t.TempDir()
	src := filepath.Join(root, "src")
	link(t, from, root, "src")
	link(t, filepath.Join(from, "src"), src, "net", "vendor")
	for _, dir := range []string{"net", "vendor"} {
		if err := os.CopyFS(filepath.Join(src, dir), os.DirFS(filepath.Join(from, "src", dir))); err != nil {
			t.Fatal(err)
		}
	}
	const files = `{{if not .Standard}}{{.ImportPath}}|{{.Dir}}|{{join .GoFiles "|"}}|{{join .SFiles "|"}}{{end}}`
	for line := range strings.Lines(goOutput(t, "list", "-deps", "-f", files, "github.com/percore/percore/adapters/httpadapter")) {
		part := strings.Split(strings.TrimSpace(line), "|")
		for _, name := range part[2:] {
			if name != "" {
				copyFile(t, filepath.Join(part[1], name), filepath.Join(src, "vendor", part[0], name))
			}
		}
	}
	copyFile(t, "testdata/percoretest.go.txt", filepath.Join(src, "percoretest", "percoretest.go"))
	changeNetHTTP(t, filepath.Join(src, "net", "http"))
	return ownLibrary{root}
}

// changeNetHTTP makes percoretest serve the tests in dir, which is net/http's directory, and below
// it.
func changeNetHTTP(t *testing.T, dir string) {
	t.Helper()
	changeFile(t, filepath.Join(dir, "server.go"), func(text string) string {
		serve := regexp.MustCompile(`func \((\w+) \*Server\) Serve\(l net\.Listener\) error \{\n`)
		if !serve.MatchString(text) {
			t.Fatalf("%s has no http.Server.Serve of the kind that is known here: adapt this test", dir)
		}
		text = serve.ReplaceAllString(text, "$0\tif PercoreServe != nil {\n"+
			"\t\tif served, err := PercoreServe($1, l); served {\n\t\t\treturn err\n\t\t}\n\t}\n")
		return text + "\nvar PercoreServe func(*Server, net.Listener) (served bool, err error)\n"
	})
	// The shutdownGuard of the fast path is active all the time.
	changeFile(t, filepath.Join(dir, "export_test.go"), func(text string) string {
		const loop = "for c := range s.activeConn {\n"
		return strings.Replace(text, loop, loop+"\t\tif fmt.Sprintf(\"%T\", c.rwc) == \"*httpadapter.shutdownGuard\" {\n\t\t\tcontinue\n\t\t}\n", 1)
	})
	replacer := strings.NewReplacer("net.Listen(", "percoretest.Listen(", ".(*net.TCPListener)", ".(percoretest.TCPListener)",
		"*net.TCPConn", "percoretest.TCPConn", "m.Run()", "percoretest.Run(m)")
	names := []string{
		"main_test.go", "serve_test.go", "fs_test.go", "transport_test.go", "clientserver_test.go",
		"httptest/server.go", "httputil/reverseproxy_test.go",
	}
	for _, name := range names {
		changeFile(t, filepath.Join(dir, name), func(text string) string {
			if name == "transport_test.go" { // its client embeds a *net.TCPConn
				return useAsNet(text, strings.ReplaceAll(text, "net.Listen(", "percoretest.Listen("))
			}
			return useAsNet(text, replacer.Replace(text))
		})
	}
	for _, name := range []string{"httptest", "httputil"} {
		text := fmt.Sprintf("package %s_test\n\nimport (\n\t\"os\"\n\t\"percoretest\"\n\t\"testing\"\n)\n\n"+
			"func TestMain(m *testing.M) { os.Exit(percoretest.Run(m)) }\n", name)
		if err := os.WriteFile(filepath.Join(dir, name, "percoretest_test.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// useAsNet adds what a Go file needs to compile after text has been replaced by changed.
func useAsNet(text, changed string) string {
	if text == changed {
		return text
	}
	changed = strings.Replace(changed, "import (\n", "import (\n\t\"percoretest\"\n", 1)
	if strings.Contains(text, "\t\"net\"\n") {
		changed += "\nvar _ net.Conn\n"
	}
	return changed
}

// link links the entries of one directory, except some, into another.
func link(t *testing.T, from, to string, except ...string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	for _, e := range entries {
		if err == nil && !slices.Contains(except, e.Name()) {
			err = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// copyFile copies a file, into a directory that it makes.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// changeFile changes the text of a file.
func changeFile(t *testing.T, name string, change func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, []byte(change(string(text))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// goOutput returns the output of the go command.
func goOutput(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// ownRun runs the tests of a package in one way.
type ownRun struct {
	*testing.T
	binary  string
	library ownLibrary
	pkg     string
	way     string
}

var (
	ownFailed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	ownServed = regexp.MustCompile(`(?m)^percore: (\d+) servers.* (\d+) requests by the fast path.*$`)
)

// all runs the tests. Some have their own time limits, so it runs the failed ones again, alone: a
// busy machine must not fail the test.
func (r ownRun) all() {
	args := []string{"-test.v"}
	if os.Getenv("PERCORE_TEST_FULL") == "" {
		args = append(args, "-test.short")
	}
	if r.way != "net" {
		args = append(args, "-test.skip=^("+strings.Join(slices.Sorted(maps.Keys(ownImpossible)), "|")+")$")
	}
	out, err := r.run(args...)
	failed := ownFailed.FindAllStringSubmatch(out, -1)
	if err != nil && (len(failed) == 0 || strings.Contains(out, "\npanic: ")) {
		r.Fatalf("%v\n%s", err, out)
	}
	for _, f := range failed {
		if out, err := r.run(append(args, "-test.run=^"+f[1]+"$")...); err != nil {
			r.Errorf("%s fails twice: %v\n%s", f[1], err, out)
		}
	}
	served := ownServed.FindStringSubmatch(out)
	if served == nil {
		r.Fatalf("the tests did not print their servers\n%s", out)
	}
	r.Logf("%d passed, %d failed, %d skipped; %s", strings.Count(out, "--- PASS"), len(failed), strings.Count(out, "--- SKIP"), served[0])
	if noServers, noRequests := served[1] == "0", served[2] == "0"; noServers != (r.way == "net") || noRequests != (r.way != "fast path") {
		r.Errorf("got %q", served[0])
	}
}

// run runs the binary.
func (r ownRun) run(args ...string) (string, error) {
	const timeout = 10 * time.Minute
	ctx, cancel := context.WithTimeout(r.Context(), timeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary, append(args, "-test.timeout="+timeout.String())...)
	cmd.Dir = filepath.Join(r.library.root, "src", r.pkg)
	cmd.Env = append(os.Environ(), "PERCORE_TEST_WAY="+r.way, "GOROOT="+r.library.root)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
