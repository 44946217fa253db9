package grpcinterop

import (
	"maps"
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
// NewServer in the place of grpc.Server, with every grpc.Server served by Wrap, and with NewClient in
// the place of grpc.ClientConn.
//
// It copies the module, in which grpc.Server's Serve, Stop and GracefulStop call testdata's
// ownserver.go.txt, and grpc.NewClient ownclient.go.txt, which returns the ClientConn of a Client. It
// compiles the tests against the copy. The tests themselves are unchanged, but that with Wrap they don't
// turn channelz on, which it would refuse. Servers that it refuses nevertheless are served by grpc-go's
// transport, and the line in the log that says so is none of the errors that fail a test. A test that
// fails is run once more by itself: some of grpc-go's depend on time.
func TestGRPCOwnTests(t *testing.T) {
	if os.Getenv("PERCORE_TEST_FULL") == "" {
		t.Skip("grpc-go is compiled once more for this, and its tests take minutes: run it with PERCORE_TEST_FULL=1")
	}
	tests, dir := compileOwn(t)
	for _, way := range ownWays {
		t.Run(way.name, func(t *testing.T) { way.run(t, tests, dir) })
	}
}

// ownWay is a way to serve grpc-go's tests.
type ownWay struct {
	name       string
	impossible map[string]string // tests that can't pass, and why: see docs/DIFFERENCES.md. Keys are patterns.
	refused    map[string]bool   // why servers may be left to grpc-go's transport
}

// run runs the tests, which program has, in dir.
func (w *ownWay) run(t *testing.T, program, dir string) {
	run := func(flags ...string) (string, error) {
		cmd := exec.Command(program, append(flags, "-test.v", "-test.timeout=10m")...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PERCORE_TEST_WAY="+w.name)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	skipped := slices.Sorted(maps.Keys(w.impossible))
	out, err := run("-test.skip=^Test$/^(" + strings.Join(skipped, "|") + ")$")
	failed := ownFailed.FindAllStringSubmatch(out, -1)
	if err != nil && (len(failed) == 0 || strings.Contains(out, "\npanic: ")) {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range failed {
		if out, err := run("-test.run=^Test$/^" + f[1] + "$"); err != nil {
			t.Errorf("%s fails twice: %v\n%s", f[1], err, out)
		}
	}
	ends, calls := ownCount(t, out, ownEnds), ownCount(t, out, ownCalls)
	passed := strings.Count(out, "\n    --- PASS: ")
	t.Logf("%d tests passed, %d failed the first time, %d patterns were left out; past grpc-go's transport: %d servers or clients, %d calls",
		passed, len(failed), len(skipped), ends, calls)
	if ends < 200 || calls < 1000 || passed < 200 {
		t.Errorf("got %d servers or clients, %d calls and %d tests that passed, want hundreds", ends, calls, passed)
	}
	for _, refusal := range ownRefusals.FindAllStringSubmatch(out, -1) {
		t.Log(refusal[0])
		if !w.refused[refusal[1]] {
			t.Errorf("some were refused because %s", refusal[1])
		}
	}
}

// ownCount returns a number that the tests have printed.
func ownCount(t *testing.T, out string, pattern *regexp.Regexp) int {
	t.Helper()
	found := pattern.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("the tests did not print %s\n%s", pattern, out)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var (
	ownFailed   = regexp.MustCompile(`(?m)^    --- FAIL: Test/(\w+) `)
	ownEnds     = regexp.MustCompile(`(?m)^own ends: (\d+)$`)
	ownCalls    = regexp.MustCompile(`(?m)^own calls: (\d+)$`)
	ownRefusals = regexp.MustCompile(`(?m)^own refusals: \d+ because (.*)$`)
)

var ownWays = []ownWay{
	{name: "NewServer", impossible: ownImpossible(map[string]string{
		"PreloaderSenderSend":                      "encodes a grpc.PreparedMsg, for which the context must have grpc-go's own value",
		"StreamingServerInterceptorGetsConnection": ownConnection,
		"UnaryServerInterceptorGetsConnection":     ownConnection,
	})},
	{name: "NewClient", impossible: map[string]string{
		"CZ.*":                               "channelz lists grpc-go's own channels",
		"ClientConnClose_WithPendingRPC":     ownChannelz,
		"RoundRobin_NewAddressWhileBlocking": ownChannelz,

		"BalancerSwitch_(.*To.*|OldBalancer.*|Graceful)": ownPolicy,
		"PickerStatusCodes":                                  ownPolicy,
		"HealthCheckUnregisterHealthListener":                ownPolicy,
		"ResolverUpdate_InvalidServiceConfigAfterGoodUpdate": ownPolicy,

		"AddressMetadataValidation":                            ownInternal,
		"ClientConnRPC_WithNameResolutionDelay":                ownInternal,
		"ClientTransportRestartsAfterStreamIDExhausted":        ownInternal,
		"ConfigSelector.*":                                     ownInternal,
		"DetailedGoAwayErrorOnAbruptClosePropagatesToRPCError": ownInternal,
		"HealthCheck(With|Channelz).*":                         ownInternal,
		"RPCBlockingOnPickerStatsCall":                         ownInternal,
		"RoundRobin_UpdateAddressAttributes":                   ownInternal,
		"StateTransitions_ResolverBuildFailure":                ownInternal,

		"ClientSendsAGoAway":                      ownGreeting,
		"GoAwayStreamIDSmallerThanCreatedStreams": ownGreeting,

		"AcceptCompressorsCallOption": "has grpc.AcceptCompressors, with which percore's client refuses calls",
		"PreloaderClientSend":         "sends a grpc.PreparedMsg, with which percore's client refuses calls",

		"Enable8KBDefaultHeaderListSize_ServerSendsLargeHeaders": "wants a limit of 8 KB; the client's is 1 MiB",
		"InvokeLargeErr": "has a status of 1 MiB, as much as percore takes of a header",

		"HTTPHeaderFrameErrorHandlingNormalTrailer": "has a :status in trailers, for which percore resets the stream (RFC 9113, section 8.1)",
		"RSTDuringMessageRead":                      "has DATA before HEADERS, for which percore resets the stream (RFC 9113, section 8.1)",
		"InvalidMetadata":                           "wants the words of another HTTP/2 for a field that is not valid",
		"MalformedHTTP2Metadata":                    "wants a name in upper case to be refused, which package metadata hides from all but grpc-go",
	}, refused: map[string]bool{
		"the client has WithCompressor":         true,
		"the client has WithCredentialsBundle":  true,
		"the client has a binary log":           true,
		"the service config has another policy": true,
	}},
	{name: "Wrap", impossible: ownImpossible(map[string]string{
		"ClientConnClose_WithPendingRPC":     ownChannelz,
		"HealthCheckChannelzCountingCall.*":  ownChannelz,
		"RoundRobin_NewAddressWhileBlocking": ownChannelz,
	}), refused: map[string]bool{
		"the server has xDS filters":                true,
		"the server has a binary log":               true,
		"the server has the option RPCCompressor":   true,
		"the server has the option RPCDecompressor": true,
	}},
}

// Reasons that several tests share.
const (
	ownConnection = "wants the context to have grpc-go's own value for the connection"
	ownChannelz   = "counts what channelz lists, which is off"

	ownPolicy   = "has a policy of load balancing of its own"
	ownInternal = "changes variables within grpc-go, or uses its internal packages"
	ownGreeting = "is a server that takes a WINDOW_UPDATE behind the client's SETTINGS for an error"

	ownFrames = "counts the WINDOW_UPDATEs and acknowledgements between the frames it waits for"
	ownQueued = "wants SendMsg to return before the client's window lets the message out; percore keeps no copy, and waits"
)

// ownImpossible returns a way's own tests that can't pass, and those that can't with either, because
// percore does something else on purpose.
func ownImpossible(own map[string]string) map[string]string {
	maps.Copy(own, map[string]string{
		"CZ.*":                              "channelz lists grpc-go's own servers and connections",
		"ServerSetGoroutineLabelsInContext": "wants labels of goroutines, which percore does not set",

		"InvalidMetadata":     "wants the client to refuse a trailer that is not valid; percore resets the stream instead",
		"MalformedMethodPath": "has a case without a :path: percore resets the stream, as RFC 9113, section 8.1.1, says",

		"Enable8KBDefaultHeaderListSize_ClientSendsLargeHeaders": "wants a limit of 8 KB; percore's is 64 KiB",

		"ClientInitialHeaderEndStream":               ownFrames,
		"ClientSendDataAfterCloseSend":               ownFrames,
		"ClientSettingsFloodCloseConn":               ownFrames,
		"ClientRequestBodyErrorCancelStreamingInput": "wants the handler of a call that was reset in the packet that opened it; percore calls none",

		"CancelWhileServerWaitingForFlowControl": ownQueued,
		"DataFrameAfterStreamDone":               ownQueued,
		"StreamCleanupAfterSendStatus":           ownQueued,
	})
	return own
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
	changeOwn(t, module)
	testnet.CopyFile(t, "testdata/ownserver.go.txt", filepath.Join(module, "ownserver.go"))
	testnet.CopyFile(t, "testdata/ownclient.go.txt", filepath.Join(module, "ownclient.go"))
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

type ownChange struct{ file, at, add, instead string }

// ownChanges are texts of the copy's files, and what comes behind them, or in their place.
var ownChanges = []ownChange{
	{file: "server.go", at: "\nfunc (s *Server) register(sd *ServiceDesc, ss any) {\n\ts.mu.Lock()\n\tdefer s.mu.Unlock()\n",
		add: "\ts.registerOwn(sd, ss)\n"},
	{file: "server.go", at: "\nfunc (s *Server) Serve(lis net.Listener) error {\n",
		add: "\tif serve := s.ownServe(); serve != nil {\n\t\treturn serve(lis)\n\t}\n"},
	{file: "server.go", at: "\nfunc (s *Server) stop(graceful bool) {\n", add: "\ts.stopOwn(graceful)\n"},
	{file: "server.go", at: "\nfunc SetSendCompressor(ctx context.Context, name string) error {\n",
		add: "\tif OwnSetSendCompressor != nil {\n\t\tif served, err := OwnSetSendCompressor(ctx, name); served {\n\t\t\treturn err\n\t\t}\n\t}\n"},
	{file: "server.go", at: "\nfunc ClientSupportedCompressors(ctx context.Context) ([]string, error) {\n",
		add: "\tif OwnClientSupportedCompressors != nil {\n" +
			"\t\tif all, served, err := OwnClientSupportedCompressors(ctx); served {\n\t\t\treturn all, err\n\t\t}\n\t}\n"},
	{file: "clientconn.go", at: "\n\tcc.idlenessMgr = idle.NewManager((*idler)(cc), cc.dopts.idleTimeout)\n",
		add: "\tif own, err := cc.makeOwn(); own != nil || err != nil {\n\t\treturn own, err\n\t}\n"},
	{file: "clientconn.go", at: "\n\tif err := cc.exitIdleMode(); err != nil {\n\t\treturn nil, fmt.Errorf(\"failed to exit idle mode: %w\", err)\n\t}\n" +
		"\tcc.idlenessMgr.UnsafeSetNotIdle()\n",
		instead: "\n\tif cc.ownClient() != nil {\n\t\tcc.Connect()\n\t} else {\n\t\tif err := cc.exitIdleMode(); err != nil {\n" +
			"\t\t\treturn nil, err\n\t\t}\n\t\tcc.idlenessMgr.UnsafeSetNotIdle()\n\t}\n"},
	{file: "clientconn.go", at: "\nfunc (cc *ClientConn) Connect() {\n", // which is to build the resolver at once
		add: "\tif own := cc.ownClient(); own != nil {\n\t\town.Connect()\n\t\treturn\n\t}\n"},
	{file: "clientconn.go", at: "\nfunc (cc *ClientConn) ResetConnectBackoff() {\n",
		add: "\tif own := cc.ownClient(); own != nil {\n\t\town.ResetConnectBackoff()\n\t\treturn\n\t}\n"},
	{file: "internal/grpctest/tlogger.go", at: "\nfunc (tl *tLogger) expected(s string, logType logType) bool {\n",
		add: "\tif regexp.MustCompile(\"own transport serves: \").MatchString(s) {\n\t\treturn true\n\t}\n"},
	{file: "test/end2end_test.go", at: "\tchannelz.TurnOn()\n", instead: "\tif os.Getenv(\"PERCORE_TEST_WAY\") != \"Wrap\" {\n\t\tchannelz.TurnOn()\n\t}\n"},
}

// changeOwn changes the copy of the module.
func changeOwn(t *testing.T, module string) {
	t.Helper()
	for _, change := range ownChanges {
		name := filepath.Join(module, change.file)
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if strings.Count(text, change.at) != 1 {
			t.Fatalf("grpc-go's %s has no %q: adapt this test", change.file, change.at)
		}
		to := change.instead
		if to == "" {
			to = change.at + change.add
		}
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(text, change.at, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
