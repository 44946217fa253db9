//go:build !percore_net

package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/percore/percore/cmd/percore/internal/try"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// needsBuild skips a test that builds programs where that would take long, or prove nothing.
func needsBuild(t *testing.T) {
	t.Helper()
	if testing.Short() || race.Enabled {
		t.Skip("builds programs: run it without -short, and without the race detector, which they wouldn't have")
	}
}

// writeFiles writes files, by their names below dir.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// writeProgram writes the program of testdata/try, with a module that it imports by its workspace alone,
// and returns the directory of package main.
func writeProgram(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/try/main.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"go.work":            "go 1.26\n\nuse ./lib\n\nuse ./program\n",
		"lib/go.mod":         "module example.com/lib\n\ngo 1.26\n",
		"lib/lib.go":         "package lib\n\nconst Greeting = \"hello\"\n",
		"program/go.mod":     "module example.com/program\n\ngo 1.26\n",
		"program/web/web.go": string(text),
		"program/library.go": "package program\n",
	})
	return filepath.Join(dir, "program")
}

// runsTry runs "percore try" in this process, and returns what it prints.
func runsTry(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv(commandVariable, "1") // for the load, which is this binary
	var out, complaints bytes.Buffer
	code = run(append([]string{"try"}, args...), &out, &complaints)
	return code, out.String(), complaints.String()
}

// TestTry builds a program both ways and compares them: percore serves all of its requests, whether it
// listens by itself or lets net/http do that, also over TLS. Where it can't, it says so.
func TestTry(t *testing.T) {
	needsBuild(t)
	testnet.NoLeaks(t)
	t.Chdir(writeProgram(t))
	before := tree(t, "..")
	dir := filepath.Join(t.TempDir(), "new")
	program, err := filepath.Abs("web")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(dir)) // which has no module
	code, stdout, stderr := runsTry(t, "-client", "-dir", dir, program)
	t.Chdir(filepath.Dir(program))
	binaries := try.Binaries{Net: filepath.Join(dir, "net"), Percore: filepath.Join(dir, "percore")}
	if want := "net      " + binaries.Net + "\npercore  " + binaries.Percore + "\n"; code != exitOK || stdout != want {
		t.Fatalf("got exit status %d and\n%s%s\nwant %q", code, stdout, stderr, want)
	}
	for _, test := range []struct {
		how, scheme string
		path        string
		flags       []string
		want        string
		err         string
	}{
		{"plain", "http", "", nil, "percore has served all requests", ""},
		{"plain", "http", "calls", nil, "http.DefaultTransport: percore has made [1-9][0-9]* of the [1-9]", ""},
		{"ServeTLS", "https", "", []string{"-http2", "-idle", "0"}, "over HTTP/2: percore has served all requests", ""},
		{"tls.NewListener", "https", "", nil, "percore has served all requests", ""},
		{"wrapped", "http", "", nil, "NO request: both columns are others' code\n(?s:.*)the program has a http.Server that has got a main.wrapped", ""},
		{"TLSNextProto", "https", "", nil, "served all requests\n(?s:.*)TLSNextProto has an HTTP/2 of the program's own", ""},
		{"own", "http", "", nil, "NO request: its connections are percore's, and a library other", ""},
		{"asserts", "http", "", nil, "", "the program needs package net's own type (*net.TCPListener)"},
		{"plain", "http", "", []string{"-load", "exit 3"}, "", "exit status 3"},
	} {
		t.Run(test.how, func(t *testing.T) {
			addr := testnet.Reserve(t)
			args := slices.Concat([]string{"-rounds", "1", "-duration", "50ms", "-warmup", "20ms", "-conns", "4", "-idle", "20"}, test.flags,
				[]string{"-url", test.scheme + "://" + addr + "/" + test.path, "./web", "--", test.how, addr})
			f, err := parseTry(args, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = f.measure(t.Context(), binaries, &out, io.Discard)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q in it", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range []string{`percore +net +`, `cpu/op +[1-9]`, `p99 +[1-9]`, test.want} {
				if !regexp.MustCompile(row).MatchString(out.String()) {
					t.Errorf("got\n%s\nwant %s in it", &out, row)
				}
			}
		})
	}
	if after := tree(t, ".."); !slices.Equal(after, before) {
		t.Errorf("the program's files are\n%q\nafter all that, and were\n%q", after, before)
	}
}

// TestTryGRPC: a grpc.Server's calls are percore's, and the go command's flags are the user's.
func TestTryGRPC(t *testing.T) {
	needsBuild(t)
	testnet.NoLeaks(t)
	// The versions are this module's, so that nothing else need be downloaded.
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var own strings.Builder
	own.WriteString("module example.com/health\n")
	for line := range strings.Lines(string(mod)) {
		if !strings.Contains(line, "github.com/percore/percore") {
			own.WriteString(line)
		}
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/try/grpc.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"go.mod":  own.String(),
		"go.sum":  string(sums),
		"main.go": string(text),
	})
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-mod=mod -trimpath")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	addr := testnet.Reserve(t)
	code, stdout, stderr := runsTry(t, "-rounds", "1", "-duration", "50ms", "-warmup", "20ms", "-conns", "4", "-idle", "20",
		"-grpc", addr+"/grpc.health.v1.Health/Check", "-message", `{"service": "here"}`, ".", "--", addr)
	if want := "Health/Check: percore has served all requests"; code != exitOK || !strings.Contains(stdout, want) {
		t.Errorf("got exit status %d and\n%s%s\nwant %q in it", code, stdout, stderr, want)
	}
	if left := tree(t, temp); len(left) > 0 {
		t.Errorf("%d files are left", len(left)/2)
	}
}

// TestTryPrograms: two programs of others, by their import paths, run as before.
func TestTryPrograms(t *testing.T) {
	needsBuild(t)
	testnet.NoLeaks(t)
	t.Chdir(t.TempDir())
	http, rpc := testnet.Reserve(t), testnet.Reserve(t)
	host, port, err := net.SplitHostPort(http)
	if err != nil {
		t.Fatal(err)
	}
	_, rpcPort, err := net.SplitHostPort(rpc)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"github.com/mccutchen/go-httpbin/v2@v2.26.0", "google.golang.org/grpc/examples@v0.0.0-20260825154716-030ee8becb20"} {
		if out, err := exec.Command("go", "mod", "download", module).CombinedOutput(); err != nil {
			t.Skipf("the go command can't download %s here, give it a GOPROXY that has it: %v\n%s", module, err, out)
		}
	}
	for _, args := range [][]string{
		{"-url", "http://" + http + "/get", "github.com/mccutchen/go-httpbin/v2/cmd/go-httpbin@v2.26.0", "--", "-host", host, "-port", port},
		{"-grpc", rpc + "/helloworld.Greeter/SayHello", "-message", "CgN5b3U=",
			"google.golang.org/grpc/examples/helloworld/greeter_server@v0.0.0-20260825154716-030ee8becb20", "--", "-port", rpcPort},
	} {
		args = append([]string{"-rounds", "1", "-duration", "50ms", "-warmup", "20ms", "-conns", "4", "-idle", "20"}, args...)
		code, stdout, stderr := runsTry(t, args...)
		if code != exitOK || !strings.Contains(stdout, "percore has served all requests") {
			t.Errorf("%q: got exit status %d and\n%s%s", args, code, stdout, stderr)
		}
	}
}

// tree returns the names and contents of all files below dir.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTryRefuses: what can't be built, or measured, is said in words.
func TestTryRefuses(t *testing.T) {
	testnet.NoLeaks(t)
	t.Chdir(writeProgram(t))
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "name a program"},
		{[]string{"-nonsense", "./web"}, exitUsage, "-nonsense"},
		{[]string{"-load", "wrk", "./web"}, exitUsage, "-load needs one -url"},
		{[]string{"-rounds", "0", "./web"}, exitUsage, "-rounds"},
		{[]string{"-grpc", "localhost:1/Check", "./web"}, exitUsage, "want HOST:PORT/SERVICE/METHOD"},
		{[]string{"-message", "?", "./web"}, exitUsage, "-message: want JSON in braces, or base64"},
		{[]string{"-url", "ftp://localhost/", "./web"}, exitUsage, "want http://"},
		{[]string{"-dir", "web", "./web"}, exitFailure, "is not empty"},
		{[]string{"."}, exitFailure, "want a program"},
		{[]string{"./missing"}, exitFailure, "missing"},
	} {
		code, stdout, stderr := runsTry(t, test.args...)
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: got exit status %d and %q, want %d and %q in it", test.args, code, stderr+stdout, test.code, test.want)
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("got %v left, %v", left, err)
	}
	if code, stdout, _ := runsTry(t, "-h"); code != exitOK || !strings.Contains(stdout, "never for production") {
		t.Errorf("-h: got exit status %d and %q", code, stdout)
	}
}
