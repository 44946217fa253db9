package conformance

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// TestNetHTTPOwnTests runs the tests of net/http, net/http/httptest and net/http/httputil, which come
// with Go, five ways: on package net, through httpadapter, through its fast path, with HTTP2, and with
// httpadapter's Transport as the client. With HTTP2 it runs also those of net/http/internal/http2, which
// send frames and are there since Go 1.27, and those of golang.org/x/net/http2, in the version that
// go.mod names; with the client those of x/net's Transport.
//
// It copies the part of the standard library that has them, puts percore into the copy's vendor
// directory, and changes a few lines. http.Server.Serve calls testdata/percoretest.go.txt, and
// net.Listen becomes percore's in those tests. Everything else is unchanged: requests, handlers,
// clients, and the calls of the http.Server's own methods. With the client the servers are net/http's on
// package net, and http.Transport.RoundTrip calls testdata/percoretest.go.txt instead. No test of
// net/http/httptrace reaches a Transport.
//
// Many tests of HTTP/2 have connections in memory, in a bubble of testing/synctest. There net/http
// accepts, and does the handshake; then testdata/percoreserve.go.txt serves the connection in its
// place. It does so for x/net's server, too, which is compiled against the copy; and x/net's Transport
// calls testdata/percorexnet.go.txt.
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
		dir := filepath.Join(lib.root, "src", pkg)
		ways := []string{"net", "HTTP/1", "HTTP/2", ownClient}
		switch pkg {
		case ownFrames:
			if !exists(filepath.Join(dir, "server_test.go")) {
				continue
			}
			ways = []string{"net", "HTTP/2"}
		case ownXNet:
			dir = copyXNet(t)
			ways = []string{"net", "HTTP/2", ownClient}
		}
		binary := filepath.Join(t.TempDir(), "own.test")
		compile := lib.goCommand("test", "-c", "-tags=http2legacy", "-o", binary, ".")
		compile.Dir = dir
		if out, err := compile.CombinedOutput(); err != nil {
			t.Fatalf("compiling the tests of %s: %v\n%s", pkg, err, out)
		}
		for _, way := range ways {
			t.Run(pkg+", "+way, func(t *testing.T) {
				run := ownRun{t, binary, dir, lib, pkg, way}
				run.all()
			})
		}
	}
}

// ownPackages are the packages that test servers.
var ownPackages = []string{"net/http", "net/http/httptest", "net/http/httputil", ownFrames, ownXNet}

// These are the packages whose tests send frames.
const (
	ownFrames = "net/http/internal/http2"
	ownXNet   = "golang.org/x/net/http2"
)

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

// ownDiffer are the tests that can't pass with percore's HTTP/2 server besides those, because they look
// into net/http's, or because percore does something else on purpose: see the comments of packages
// internal/http2 and adapters/httpadapter/internal/httpstream.
var ownDiffer = map[string]string{
	"TestServeTLS":       "waits in a hook of net/http's Serve, which the adapter calls several times",
	"TestServerShutdown": "counts the connections that net/http has",

	"TestCompressionErrorOnWrite":           ownPrivate,
	"TestNoErrorLoggedOnPostAfterGOAWAY":    ownPrivate,
	"TestServer_HeaderTableSizeDuringWrite": ownPrivate,
	"TestServer_Headers_HalfCloseRemote":    ownPrivate,
	"TestServer_MaxEncoderHeaderTableSize":  ownPrivate,
	"TestServer_StateTransitions":           ownPrivate,
	"TestServer_RSTStream_Unblocks_Read":    "compares an error with one of a type that other packages can't have",

	"TestServer_Push_RejectRecursivePush":           ownPush,
	"TestServer_Push_RejectWhenNoConcurrentStreams": ownPush,
	"TestServer_Push_StateTransitions":              ownPush,
	"TestServer_Push_Success":                       ownPush,
	"TestServer_Push_SuccessNoRace":                 ownPush,
	"TestServer_Push_Underflow":                     ownPush,

	"TestServer_Rejects_TLS10":        ownLeft,
	"TestServer_Rejects_TLS11":        ownLeft,
	"TestServer_Rejects_TLSBadCipher": ownLeft,

	"TestCompressionErrorOnClose":        ownLastStream,
	"TestRejectFrameOnIdle_Data":         ownLastStream,
	"TestRejectFrameOnIdle_RSTStream":    ownLastStream,
	"TestRejectFrameOnIdle_WindowUpdate": ownLastStream,
	"TestServerContinuationFlood":        ownLastStream,
	"TestServer_Rejects_PushPromise":     ownLastStream,

	"TestServerGracefulShutdown":       ownDrain,
	"TestServerHandlerConnectionClose": ownDrain,

	"TestServerResetStreamUnreadBody":                      ownCredit,
	"TestServerReturnsStreamAndConnFlowControlOnBodyClose": ownCredit,
	"TestServerWindowUpdateOnBodyClose":                    ownCredit,
	"TestServer_Handler_Sends_WindowUpdate":                ownCredit,
	"TestServer_Handler_Sends_WindowUpdate_Padding":        ownCredit,

	"TestRequestBodyReadCloseRace":                        "wants RST_STREAM behind an early answer at once; here it comes a tenth of a second later, for curl",
	"TestServerWriteByteTimeout":                          "wants the connection closed; here the client is told why first, and has as long again",
	"TestServerMaxHandlerGoroutines":                      "wants GOAWAY for too many handlers of streams that were reset; here new streams are refused",
	"TestServer_Request_Post_Body_ContentLength_TooSmall": "wants the handler called for a stream that is reset at once; here it is not, if the reset comes before its turn",
	"TestProtocolErrorAfterGoAway":                        "wants no second GOAWAY for an error behind a graceful one",
	"TestServerSettingsFlowControlUpdateBeyondLimit":      "wants the error when the next DATA is sent; here it comes at once",
	"TestServer_MaxQueuedControlFrames":                   "wants what is queued to be dropped; here as many are the most, but they are sent",
	"TestServer_NoCrash_HandlerClose_Then_ClientClose":    "wants RST_STREAM for DATA on a stream that the server has reset; here it is ignored",
	"TestServer_Response_Stream_With_Missing_Trailer":     "wants an empty DATA frame; here HEADERS end an answer without body and trailers",
}

// ownDifferXNet are those of x/net's tests that can't pass besides.
var ownDifferXNet = map[string]string{
	"TestExtendedConnectClientWithServerSupport": "switches extended CONNECT on in a variable of x/net's; here GODEBUG=http2xconnect=1 does",
	"TestAPIServerPermitProhibitedCipherSuites":  "has TLS 1.3 with a cipher suite that TLS 1.3 doesn't have",
	"TestAPIServerCountError":                    "sets CountError: percore leaves these connections to net/http",
	"TestAPIServerIdleTimeout":                   ownDrain,
	"TestAPIServerWriteByteTimeout":              "wants the connection closed; here the client is told why first, and has as long again",
	"TestServerRFC7540PrioritySmallPayload":      ownTurns,
	"TestServerRFC9218PrioritySmallPayload":      ownTurns,
	"TestServerSettingNoRFC7540Priorities":       "chooses what serves the priorities of RFC 7540",
}

// ownDifferXNet126 are those that can't pass with Go 1.26 besides: x/net serves the priorities of RFC
// 9218 even then, and percore as net/http does, since Go 1.27.
var ownDifferXNet126 = []string{
	"TestServerRFC9218Priority",
	"TestServerSettingNoRFC7540PrioritiesInvalid",
	"TestServer_Rejects_PriorityUpdate0",
	"TestServer_Rejects_PriorityUpdateUnparsable",
}

// servesPriorities reports whether net/http serves the priorities of RFC 9218.
func servesPriorities() bool {
	_, ok := reflect.TypeFor[http.Server]().FieldByName("DisableClientPriority")
	return ok
}

// Reasons that several tests share.
const (
	ownPrivate    = "looks into net/http's connection"
	ownPush       = "wants the server to push, which percore does not"
	ownLeft       = "wants TLS refused that is too old or too weak: percore leaves these connections to net/http"
	ownLastStream = "wants the stream of the frame that was wrong in GOAWAY; percore names the last one it has opened: a client may repeat the others"
	ownDrain      = "wants one GOAWAY; percore sends two, with a PING between them (RFC 9113, section 6.8)"
	ownCredit     = "wants credit for 4 KiB at a time; percore gives it back by the quarter of a window"
	ownTurns      = "wants a frame of each stream in turn, of a byte each; here handlers take turns when 64 KiB wait to be sent"
)

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
	if version := testnet.GoCommand(t, nil, "env", "GOVERSION"); version != strings.Fields(runtime.Version())[0] {
		t.Skipf("the go command here is %s, and this is built by %s", version, runtime.Version())
	}
	from, root := testnet.GoCommand(t, nil, "env", "GOROOT"), t.TempDir()
	src := filepath.Join(root, "src")
	link(t, from, root, "src")
	link(t, filepath.Join(from, "src"), src, "net", "vendor")
	for _, dir := range []string{"net", "vendor"} {
		if err := os.CopyFS(filepath.Join(src, dir), os.DirFS(filepath.Join(from, "src", dir))); err != nil {
			t.Fatal(err)
		}
	}
	const files = `{{if not .Standard}}{{.ImportPath}}|{{.Dir}}|{{join .GoFiles "|"}}|{{join .SFiles "|"}}{{end}}`
	for line := range strings.Lines(testnet.GoCommand(t, nil, "list", "-deps", "-f", files, "github.com/percore/percore/adapters/httpadapter")) {
		part := strings.Split(strings.TrimSpace(line), "|")
		for _, name := range part[2:] {
			if name != "" {
				testnet.CopyFile(t, filepath.Join(part[1], name), filepath.Join(src, "vendor", part[0], name))
			}
		}
	}
	copyChunks(t, src)
	changeClient(t, src)
	testnet.CopyFile(t, "testdata/percoreserve.go.txt", filepath.Join(src, "vendor", "github.com/percore/percore/adapters/httpadapter", "percoreserve.go"))
	changeFile(t, filepath.Join(src, "vendor", "github.com/percore/percore/adapters/httpadapter", "http2.go"), func(text string) string {
		return insertAt(t, text, `func \(call \*serveCall\) newStreams\(\) \*h2\.Server \{\n`, "\tif PercoreLeavesHTTP2 {\n\t\treturn nil\n\t}\n")
	})
	testnet.CopyFile(t, "testdata/percoretest.go.txt", filepath.Join(src, "percoretest", "percoretest.go"))
	changeNetHTTP(t, filepath.Join(src, "net", "http"))
	return ownLibrary{root}
}

// changeNetHTTP makes percoretest serve the tests in dir, which is net/http's directory, and below it.
func changeNetHTTP(t *testing.T, dir string) {
	t.Helper()
	changeFile(t, filepath.Join(dir, "server.go"), func(text string) string {
		serve := regexp.MustCompile(`func \((\w+) \*Server\) Serve\(l net\.Listener\) error \{\n`)
		if !serve.MatchString(text) {
			t.Fatalf("%s has no http.Server.Serve of the kind that is known here: adapt this test", dir)
		}
		text = serve.ReplaceAllString(text, "$0\tif PercoreServe != nil {\n"+
			"\t\tif served, err := PercoreServe($1, l); served {\n\t\t\treturn err\n\t\t}\n\t}\n")
		text = insertAt(t, text, `func \(s \*Server\) ServeTLS\(l net\.Listener, certFile, keyFile string\) error \{\n`,
			"\tif PercoreServeTLS != nil {\n\t\tif served, err := PercoreServeTLS(s, l, certFile, keyFile); served {\n\t\t\treturn err\n\t\t}\n\t}\n")
		return text + "\nvar PercoreServe func(*Server, net.Listener) (served bool, err error)\n" +
			"var PercoreServeTLS func(s *Server, l net.Listener, certFile, keyFile string) (served bool, err error)\n" +
			"var PercoreServeHTTP2 func(ctx context.Context, s *Server, c net.Conn, sawPreface bool) (served bool)\n" +
			"func (s *Server) PercoreKeepAlives() bool { return s.doKeepAlives() }\n"
	})
	changeTransport(t, dir)
	changeHTTP2(t, dir)
	changeFile(t, filepath.Join(dir, "export_test.go"), func(text string) string {
		// The shutdownGuard is active all the time.
		const loop = "for c := range s.activeConn {\n"
		text = strings.Replace(text, loop, loop+"\t\tif fmt.Sprintf(\"%T\", c.rwc) == \"*httpadapter.shutdownGuard\" {\n\t\t\tcontinue\n\t\t}\n", 1)
		// Go 1.26's tests set HTTP/2 up before they serve. The adapter takes that for a program with a
		// server of its own, which would get the connections; and net/http does it again in Serve.
		const setUp = "= http2ConfigureServer\n"
		if !strings.Contains(text, setUp) {
			return text
		}
		return strings.Replace(text, setUp, "= percoreConfigureServer\n", 1) +
			"\nfunc percoreConfigureServer(s *Server, conf *http2Server) error {\n\terr := http2ConfigureServer(s, conf)\n" +
			"\tif PercoreServeHTTP2 != nil {\n\t\ts.TLSNextProto = nil\n\t}\n\treturn err\n}\n"
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
	packages := []string{"httptest", "httputil"}
	if frames := filepath.Join(dir, "internal", "http2"); exists(filepath.Join(frames, "server_test.go")) {
		packages = append(packages, "internal/http2")
		awaitNoConn(t, frames, "server_test.go")
	}
	for _, name := range packages {
		writeTestMain(t, filepath.Join(dir, name))
	}
}

// writeTestMain makes percoretest run the tests in dir.
func writeTestMain(t *testing.T, dir string) {
	t.Helper()
	text := fmt.Sprintf("package %s_test\n\nimport (\n\t\"os\"\n\t\"percoretest\"\n\t\"testing\"\n)\n\n"+
		"func TestMain(m *testing.M) { os.Exit(percoretest.Run(m)) }\n", filepath.Base(dir))
	if err := os.WriteFile(filepath.Join(dir, "percoretest_test.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitNoConn changes the tests of frames in dir. In their file tester they wait for the state that
// net/http or x/net has of a connection: percore has none.
func awaitNoConn(t *testing.T, dir, tester string) {
	t.Helper()
	changeFile(t, filepath.Join(dir, tester), func(text string) string {
		const await = "\tst.sc = <-connc\n"
		if !strings.Contains(text, await) {
			t.Fatal("the tests of frames don't wait for a connection as they did: adapt this test")
		}
		return strings.Replace(text, await, "\tif os.Getenv(\"PERCORE_TEST_WAY\") == \"net\" {\n\t"+await+"\t}\n", 1)
	})
	changeFile(t, filepath.Join(dir, "server_test.go"), func(text string) string {
		return insertAt(t, text, `func \(st \*serverTester\) wantConnFlowControlConsumed\(consumed int32\) \{\n`, "\tif st.sc == nil {\n\t\treturn\n\t}\n")
	})
}

// copyXNet copies the module golang.org/x/net, makes percoretest serve the connections of its HTTP/2
// server, and returns the directory of that. The build tag http2legacy selects this server: since Go
// 1.27 the module would otherwise call net/http's.
func copyXNet(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	from := testnet.GoCommand(t, nil, "list", "-m", "-f", "{{.Dir}}", "golang.org/x/net")
	if err := os.CopyFS(root, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "http2")
	changeFile(t, filepath.Join(dir, "server.go"), func(text string) string {
		text = strings.Replace(text, "import (\n", "import (\n\t\"percoretest\"\n", 1)
		return insertAt(t, text, `func \(s \*Server\) serveConn\(c net.Conn, opts \*ServeConnOpts, .*\{\n.*\n\tdefer cancel\(\)\n`,
			"\tpercoreConf := configFromServer(opts.baseConfig(), s)\n"+
				"\tif opts.UpgradeRequest == nil && percoretest.ServeXNet(baseCtx, opts.baseConfig(), opts.handler(), &http.HTTP2Config{\n"+
				"\t\tMaxConcurrentStreams:          int(percoreConf.MaxConcurrentStreams),\n"+
				"\t\tMaxDecoderHeaderTableSize:     int(percoreConf.MaxDecoderHeaderTableSize),\n"+
				"\t\tMaxEncoderHeaderTableSize:     int(percoreConf.MaxEncoderHeaderTableSize),\n"+
				"\t\tMaxReadFrameSize:              int(percoreConf.MaxReadFrameSize),\n"+
				"\t\tMaxReceiveBufferPerConnection: int(percoreConf.MaxUploadBufferPerConnection),\n"+
				"\t\tMaxReceiveBufferPerStream:     int(percoreConf.MaxUploadBufferPerStream),\n"+
				"\t\tSendPingTimeout:               percoreConf.SendPingTimeout,\n"+
				"\t\tPingTimeout:                   percoreConf.PingTimeout,\n"+
				"\t\tWriteByteTimeout:              percoreConf.WriteByteTimeout,\n"+
				"\t\tPermitProhibitedCipherSuites:  percoreConf.PermitProhibitedCipherSuites,\n"+
				"\t\tCountError:                    percoreConf.CountError,\n"+
				"\t}, s.IdleTimeout, c, opts.SawClientPreface) {\n\t\treturn\n\t}\n")
	})
	changeXNetTransport(t, dir)
	awaitNoConn(t, dir, "server_common_test.go")
	writeTestMain(t, dir)
	return dir
}

// changeHTTP2 makes PercoreServeHTTP2 serve the connections that speak HTTP/2.
func changeHTTP2(t *testing.T, dir string) {
	const call = "\tif PercoreServeHTTP2 != nil && %s == nil && PercoreServeHTTP2(%s, %s, %s, %s) {\n\t\treturn\n\t}\n"
	if name := filepath.Join(dir, "http2.go"); exists(name) {
		changeFile(t, name, func(text string) string {
			return insertAt(t, text, `func \(s \*Server\) serveHTTP2Conn\(ctx context.Context, nc net.Conn, .*\{\n`,
				fmt.Sprintf(call, "upgradeReq", "ctx", "s", "nc", "sawClientPreface"))
		})
		return
	}
	changeFile(t, filepath.Join(dir, "h2_bundle.go"), func(text string) string {
		return insertAt(t, text, `func \(s \*http2Server\) serveConn\(c net.Conn, opts \*http2ServeConnOpts, .*\{\n.*\n\tdefer cancel\(\)\n`,
			fmt.Sprintf(call, "opts.UpgradeRequest", "baseCtx", "opts.baseConfig()", "c", "opts.SawClientPreface"))
	})
}

// insertAt inserts lines behind the text that a pattern matches.
func insertAt(t *testing.T, text, pattern, lines string) string {
	t.Helper()
	at := regexp.MustCompile(pattern).FindStringIndex(text)
	if at == nil {
		t.Fatalf("there is nothing like %s: adapt this test", pattern)
	}
	return text[:at[1]] + lines + text[at[1]:]
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
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

// ownRun runs the tests of a package in one way.
type ownRun struct {
	*testing.T
	binary  string
	dir     string // of the package
	library ownLibrary
	pkg     string
	way     string
}

var (
	ownFailed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	ownServed = regexp.MustCompile(`(?m)^percore: (\d+) servers.* (\d+) requests over HTTP/1.* (\d+) requests and (\d+) connections in memory over HTTP/2$`)
)

// all runs the tests. Some have their own time limits, so it runs the failed ones again, alone: a
// busy machine must not fail the test.
func (r ownRun) all() {
	args := []string{"-test.v"}
	if os.Getenv("PERCORE_TEST_FULL") == "" {
		args = append(args, "-test.short")
	}
	if r.way == "HTTP/2" && r.pkg == "net/http" { // of the tests that run for several protocols, this part is left
		args = append(args, "-test.run=/^(h2|h2unencrypted)$")
	}
	switch r.way {
	case "net":
	case ownClient:
		args = append(args, r.clientArgs()...)
	default:
		skip := slices.Collect(maps.Keys(ownImpossible))
		if r.way == "HTTP/2" {
			skip = slices.AppendSeq(skip, maps.Keys(ownDiffer))
		}
		if r.pkg == ownXNet {
			skip = slices.AppendSeq(skip, maps.Keys(ownDifferXNet))
			if !servesPriorities() {
				skip = append(skip, ownDifferXNet126...)
			}
		}
		slices.Sort(skip)
		args = append(args, "-test.skip=^("+strings.Join(skip, "|")+")$")
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
	r.checkClient(out)
	r.Logf("%d passed, %d failed, %d skipped; %s", strings.Count(out, "--- PASS"), len(failed), strings.Count(out, "--- SKIP"), served[0])
	got := func(i int) bool { return served[i] != "0" }
	overHTTP2 := got(3) || got(4)
	if n, _ := strconv.Atoi(served[3]); r.way == "HTTP/2" && r.pkg == "net/http" && n < 500 {
		r.Errorf("got %d requests over HTTP/2, want those of hundreds of tests", n)
	}
	if served := map[string]bool{
		"net":     !got(1) && !overHTTP2,
		"HTTP/1":  got(1) && got(2) && !overHTTP2,
		ownClient: !got(1) && !overHTTP2,
		"HTTP/2":  overHTTP2 || r.pkg == "net/http/httptest" || r.pkg == "net/http/httputil", // which have hardly any
	}; !served[r.way] {
		r.Errorf("got a run whose servers are not those that it should have")
	}
}

// run runs the binary.
func (r ownRun) run(args ...string) (string, error) {
	const timeout = 10 * time.Minute
	ctx, cancel := context.WithTimeout(r.Context(), timeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary, append(args, "-test.timeout="+timeout.String())...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PERCORE_TEST_WAY="+r.way, "GOROOT="+r.library.root)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
