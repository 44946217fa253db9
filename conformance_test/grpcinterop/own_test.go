package grpcinterop

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestGRPCOwnTests runs grpc-go's end-to-end tests, package test of its module, with grpcadapter's
// NewServer in the place of grpc.Server.
//
// It copies the module, in which grpc.Server's Serve, Stop and GracefulStop call testdata's
// ownserver.go.txt, and compiles the tests against the copy. The tests themselves are unchanged. A test
// that fails is run once more by itself: some of grpc-go's depend on time.
func TestGRPCOwnTests(t *testing.T) {
	if os.Getenv("PERCORE_TEST_FULL") == "" {
		t.Skip("grpc-go is compiled once more for this, and its tests take minutes: run it with PERCORE_TEST_FULL=1")
	}
	tests, dir := compileOwn(t)
	run := func(flags ...string) (string, error) {
		cmd := exec.Command(tests, append(flags, "-test.v", "-test.timeout=10m")...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PERCORE_TEST_WAY=NewServer")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("-test.skip=^Test$/^(" + strings.Join(ownSkipped(), "|") + ")$")
	failed := ownFailed.FindAllStringSubmatch(out, -1)
	if err != nil && (len(failed) == 0 || strings.Contains(out, "\npanic: ")) {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range failed {
		if out, err := run("-test.run=^Test$/^" + f[1] + "$"); err != nil {
			t.Errorf("%s fails twice: %v\n%s", f[1], err, out)
		}
	}
	servers := ownServers.FindStringSubmatch(out)
	if servers == nil {
		t.Fatalf("the tests did not print their servers\n%s", out)
	}
	passed := strings.Count(out, "\n    --- PASS: ")
	t.Logf("%d tests passed, %d failed the first time, %d were left out; %s", passed, len(failed), len(ownImpossible), servers[0])
	if n, _ := strconv.Atoi(servers[1]); n < 200 || passed < 200 {
		t.Errorf("got %d servers and %d tests that passed, want hundreds", n, passed)
	}
}

var (
	ownFailed  = regexp.MustCompile(`(?m)^    --- FAIL: Test/(\w+) `)
	ownServers = regexp.MustCompile(`(?m)^own servers: (\d+)$`)
)

// ownImpossible are the tests that can't pass with a server other than grpc-go's, or because percore
// does something else on purpose: see docs/DIFFERENCES.md. Keys are patterns.
var ownImpossible = map[string]string{
	"CZ.*":                              "channelz lists grpc-go's own servers and connections",
	"PreloaderSenderSend":               "encodes a grpc.PreparedMsg, for which the context must have grpc-go's own value",
	"ServerSetGoroutineLabelsInContext": "wants labels of goroutines, which percore does not set",
	"StreamingServerInterceptorGetsConnection": ownConnection,
	"UnaryServerInterceptorGetsConnection":     ownConnection,

	"ClientInvalidStreamID":              ownText,
	"InvalidStreamIDSmallerThanPrevious": ownText,
	"InvalidMetadata":                    "wants the client to refuse a trailer that is not valid; percore resets the stream instead",
	"MalformedMethodPath":                "has a case without a :path: percore resets the stream, as RFC 9113, section 8.1.1, says",

	"Enable8KBDefaultHeaderListSize_ClientSendsLargeHeaders": "wants a limit of 8 KB; percore's is 64 KiB",

	"ClientInitialHeaderEndStream":               ownFrames,
	"ClientSendDataAfterCloseSend":               ownFrames,
	"ClientSettingsFloodCloseConn":               ownFrames,
	"ClientRequestBodyErrorCancelStreamingInput": "wants the handler of a call that was reset in the packet that opened it; percore calls none",

	"CancelWhileServerWaitingForFlowControl": ownQueued,
	"DataFrameAfterStreamDone":               ownQueued,
	"StreamCleanupAfterSendStatus":           ownQueued,
}

// Reasons that several tests share.
const (
	ownConnection = "wants the context to have grpc-go's own value for the connection"
	ownText       = "compares the text of a GOAWAY"
	ownFrames     = "counts the WINDOW_UPDATEs and acknowledgements between the frames it waits for"
	ownQueued     = "wants SendMsg to return before the client's window lets the message out; percore keeps no copy, and waits"
)

// ownSkipped returns the patterns of the tests that are left out.
func ownSkipped() []string {
	var patterns []string
	for pattern := range ownImpossible {
		patterns = append(patterns, pattern)
	}
	slices.Sort(patterns)
	return patterns
}

// outside has the go command build a module of its own, outside the workspace.
var outside = []string{"GOWORK=off"}

// compileOwn compiles grpc-go's tests, and returns the program, and the directory that it runs in.
func compileOwn(t *testing.T) (program, dir string) {
	t.Helper()
	const grpcGo, ours = "google.golang.org/grpc", "github.com/percore/percore"
	temp := t.TempDir()
	module := filepath.Join(temp, "grpc")
	if err := os.CopyFS(module, os.DirFS(testnet.GoCommand(t, outside, "list", "-m", "-f", "{{.Dir}}", grpcGo))); err != nil {
		t.Fatal(err)
	}
	changeOwn(t, filepath.Join(module, "server.go"))
	testnet.CopyFile(t, "testdata/ownserver.go.txt", filepath.Join(module, "ownserver.go"))
	testnet.CopyFile(t, "testdata/owntest.go.txt", filepath.Join(module, "owntest", "owntest.go"))
	main := "package test\n\nimport (\n\t\"os\"\n\t\"testing\"\n\n\t\"google.golang.org/grpc/owntest\"\n)\n\n" +
		"func TestMain(m *testing.M) { os.Exit(owntest.Run(m)) }\n"
	dir = filepath.Join(module, "test")
	if err := os.WriteFile(filepath.Join(dir, "owntest_test.go"), []byte(main), 0o600); err != nil {
		t.Fatal(err)
	}

	// The compiler is given another go.mod for this module, which has the copy.
	mod := filepath.Join(temp, "go.mod")
	testnet.CopyFile(t, "go.mod", mod)
	testnet.CopyFile(t, "go.sum", filepath.Join(temp, "go.sum"))
	root := testnet.GoCommand(t, outside, "list", "-m", "-f", "{{.Dir}}", ours)
	testnet.GoCommand(t, outside, "mod", "edit", "-replace="+grpcGo+"="+module, "-replace="+ours+"="+root,
		"-replace="+ours+"/adapters/grpcadapter="+filepath.Join(root, "adapters/grpcadapter"), mod)
	program = filepath.Join(temp, "own.test")
	testnet.GoCommand(t, outside, "test", "-c", "-mod=mod", "-modfile="+mod, "-o="+program, grpcGo+"/test")
	return program, dir
}

// changeOwn makes the copy's server.go call ownserver.go.
func changeOwn(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, insert := range [][2]string{
		{"\ntype Server struct {\n", "\town ownState\n"},
		{"\nfunc (s *Server) register(sd *ServiceDesc, ss any) {\n\ts.mu.Lock()\n\tdefer s.mu.Unlock()\n",
			"\ts.own.services = append(s.own.services, ownService{sd, ss})\n"},
		{"\nfunc (s *Server) Serve(lis net.Listener) error {\n",
			"\tif own := s.ownServer(); own != nil {\n\t\ts.mu.Lock()\n\t\ts.serve = true\n\t\ts.mu.Unlock()\n\t\treturn own.Serve(lis)\n\t}\n"},
		{"\nfunc (s *Server) stop(graceful bool) {\n", "\ts.stopOwn(graceful)\n"},
		{"\nfunc SetSendCompressor(ctx context.Context, name string) error {\n",
			"\tif OwnSetSendCompressor != nil {\n\t\tif served, err := OwnSetSendCompressor(ctx, name); served {\n\t\t\treturn err\n\t\t}\n\t}\n"},
		{"\nfunc ClientSupportedCompressors(ctx context.Context) ([]string, error) {\n",
			"\tif OwnClientSupportedCompressors != nil {\n\t\tif all, served, err := OwnClientSupportedCompressors(ctx); served {\n\t\t\treturn all, err\n\t\t}\n\t}\n"},
	} {
		if strings.Count(text, insert[0]) != 1 {
			t.Fatalf("grpc-go's server.go has no %q: adapt this test", insert[0])
		}
		text = strings.Replace(text, insert[0], insert[0]+insert[1], 1)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
