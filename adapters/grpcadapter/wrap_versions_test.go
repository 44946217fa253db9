package grpcadapter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// versionsVariable has versions of grpc-go, separated by spaces, for TestWrapVersions.
const versionsVariable = "PERCORE_GRPC_VERSIONS"

// TestWrapVersions builds testdata/wrapped with other versions of grpc-go: each is served past its
// transport, or refused with a reason, and in either case the server's interceptor is obeyed. A version
// with "=served" behind it must be served. It builds grpc-go for each of them, which takes half a
// minute:
//
//	PERCORE_GRPC_VERSIONS="1.75.1 1.84.0 1.86.0-dev=served" go test -run TestWrapVersions -v ./adapters/grpcadapter
func TestWrapVersions(t *testing.T) {
	versions := strings.Fields(os.Getenv(versionsVariable))
	if len(versions) == 0 {
		t.Skipf("builds grpc-go: to run it, set %s to versions of it, \"1.84.0\" for example", versionsVariable)
	}
	for _, version := range versions {
		version, served := strings.CutSuffix(version, "=served")
		t.Run(version, func(t *testing.T) {
			out := runWrapped(t, "google.golang.org/grpc v"+version)
			if !strings.Contains(out, "grpc-go "+version+", refused: ") {
				t.Error("it was another version")
			}
			if served && !strings.Contains(out, ", refused: <nil>\n") {
				t.Error("it is refused: learn what it has changed, and let internal/innards know it")
			}
		})
	}
}

// TestWrapChanged does the same with grpc-go of this version whose source was changed: all of that is
// refused, except that InitialWindowSize lets windows grow, as it is to be after 1.85.
func TestWrapChanged(t *testing.T) {
	if os.Getenv(versionsVariable) == "" {
		t.Skipf("builds grpc-go: to run it, set %s to versions of it, or to a space", versionsVariable)
	}
	dir := filepath.Join(t.TempDir(), "grpc")
	if err := os.CopyFS(dir, os.DirFS(grpcDir(t))); err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(dir, "server.go")
	original, err := os.ReadFile(server)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(server, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, old, new, want string }{
		{"added", "\twaitForHandlers       bool\n", "\twaitForHandlers       bool\n\tmostCalls int\n", "field mostCalls int of grpc.serverOptions is not known"},
		{"retyped", "\tmaxReceiveMessageSize int\n", "\tmaxReceiveMessageSize int8\n", "field maxReceiveMessageSize int8 of grpc.serverOptions is not known"},
		{"windows", "\t\to.initialWindowSize = s\n\t\to.staticWindowSize = true\n", "\t\to.initialWindowSize = s\n", "refused: <nil>"},
		{"a key", "ctx = contextWithServer(ctx, s)", "ctx = context.WithValue(contextWithServer(ctx, s), 1, 2)", "the contexts of calls have the keys"},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := strings.Replace(string(original), test.old, test.new, 1)
			if changed == string(original) {
				t.Fatalf("grpc-go's source does not have %q", test.old)
			}
			if test.name == "retyped" { // so that it compiles
				changed = regexp.MustCompile(`(o\.maxReceiveMessageSize = )m\b`).ReplaceAllString(changed, "${1}int8(m)")
				changed = strings.ReplaceAll(changed, "s.opts.maxReceiveMessageSize,", "int(s.opts.maxReceiveMessageSize),")
				changed = strings.ReplaceAll(changed, "defaultServerMaxReceiveMessageSize = 1024 * 1024 * 4", "defaultServerMaxReceiveMessageSize = 100")
			}
			if err := os.WriteFile(server, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := runWrapped(t, dir); !strings.Contains(out, test.want) {
				t.Errorf("want %q", test.want)
			}
		})
	}
}

// runWrapped builds testdata/wrapped with another grpc-go, and returns what it prints.
func runWrapped(t *testing.T, grpc string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" {
			text = fmt.Appendf(text, "\nreplace google.golang.org/grpc => %s\n", grpc)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "wrapped")
	build := exec.Command("go", "build", "-modfile="+filepath.Join(dir, "go.mod"), "-o", binary, "./testdata/wrapped")
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.Command(binary).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(out), "the call: rpc error: code = PermissionDenied desc = no right") {
		t.Error("the interceptor was skipped")
	}
	return string(out)
}
