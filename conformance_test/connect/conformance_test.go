package connect

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	_ "github.com/percore/percore/adapters/grpcadapter" // the server that is tested imports these two
	_ "github.com/percore/percore/adapters/httpadapter"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

const suite = "connectrpc.com/conformance"

// A way is a server that the suite tests.
type way struct {
	name     string
	features string // what it is tested for
	cases    int    // the least number of cases
	failing  string // the suite's list of what grpc-go fails; "": none
	streams  int    // the least number of calls that percore serves over HTTP/2
	requests int    // and past net/http over HTTP/1.1
}

// notUnimplemented lists the calls with no message, or two, where there should be one. gRPC's status
// codes are documented to be UNIMPLEMENTED then; grpc-go answers INTERNAL.
const notUnimplemented = "grpcserver-known-failing.txt"

var ways = []way{
	{name: "grpc.NewServer", features: "grpc.yaml", cases: 2196, failing: notUnimplemented},
	{name: "grpcadapter.NewServer", features: "grpc.yaml", cases: 2196, failing: notUnimplemented, streams: 2196},
	{name: "Wrap", features: "grpc.yaml", cases: 2196, failing: notUnimplemented, streams: 2196},
	{name: "net/http", features: "http.yaml", cases: 10756},
	{name: "httpadapter", features: "http.yaml", cases: 10756, streams: 6704, requests: 1000},
}

// TestConformance runs the conformance suite: gRPC against all gRPC servers, and all protocols, over
// HTTP/1.1 and HTTP/2, against connect-go's handlers on both http.Servers. The suite's client is
// connect-go's in part of the cases and grpc-go's in others. Streams of all types, TLS with and without
// certificates of clients, both codecs, all compressions and limits are among them. Then it runs the
// suite's client of gRPC, with grpc-go's transport and with grpcadapter's, against the suite's servers.
//
// It copies the suite, whose packages can't be imported, adds the program in testdata, and compiles
// both.
func TestConformance(t *testing.T) {
	if os.Getenv("PERCORE_TEST_FULL") == "" {
		t.Skip("it takes four minutes: run it with PERCORE_TEST_FULL=1")
	}
	dir := compile(t)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { w.test(t, dir) })
	}
	for _, client := range []string{grpcClient, ownClient} {
		t.Run(client, func(t *testing.T) { testClient(t, dir, client) })
	}
}

// outside has the go command build a module of its own, outside the workspace.
var outside = []string{"GOWORK=off"}

// compile compiles the suite and the server, and returns their directory, which has the suite's lists,
// too.
func compile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	from := testnet.GoCommand(t, outside, "list", "-m", "-f", "{{.Dir}}", suite)
	module := filepath.Join(dir, "module")
	if err := os.CopyFS(module, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	testnet.CopyFile(t, "testdata/server.go.txt", filepath.Join(module, "internal/app/percoreserver/main.go"))
	testnet.CopyFile(t, "testdata/reference.go.txt", filepath.Join(module, "internal/app/referenceserver/percore.go"))
	for _, list := range []string{notUnimplemented, clientNotUnimplemented, clientFeatures} {
		testnet.CopyFile(t, filepath.Join(module, "testing", list), filepath.Join(dir, list))
	}

	// The compiler is given another go.mod for this module, which has the copy.
	mod := filepath.Join(dir, "go.mod")
	testnet.CopyFile(t, "go.mod", mod)
	testnet.CopyFile(t, "go.sum", filepath.Join(dir, "go.sum"))
	const ours = "github.com/percore/percore"
	root := testnet.GoCommand(t, outside, "list", "-m", "-f", "{{.Dir}}", ours)
	testnet.GoCommand(t, outside, "mod", "edit", "-replace="+suite+"="+module, "-replace="+ours+"="+root,
		"-replace="+ours+"/adapters/grpcadapter="+filepath.Join(root, "adapters/grpcadapter"), mod)
	build := func(to string, programs ...string) {
		testnet.GoCommand(t, outside, append([]string{"build", "-modfile=" + mod, "-o=" + to}, programs...)...)
	}
	build(dir+"/", suite+"/internal/app/percoreserver", suite+"/cmd/connectconformance")
	build(filepath.Join(dir, grpcClient), suite+"/cmd/grpcclient")
	ownCalls(t, filepath.Join(module, "internal/app/grpcclient/client.go"))
	build(filepath.Join(dir, ownClient), suite+"/cmd/grpcclient")
	return dir
}

// The programs of the suite's client of gRPC, by what makes its connections.
const (
	grpcClient = "client,grpc.NewClient"
	ownClient  = "client,grpcadapter.NewClient"
)

// The suite's files for a client of gRPC: what it is tested for, and what grpc-go fails, as at the
// server.
const (
	clientFeatures         = "grpc-impls-config.yaml"
	clientNotUnimplemented = "grpcclient-known-failing.txt"
	clientCases            = 100 // at least
)

var (
	grpcOption = regexp.MustCompile(`\bgrpc\.(With\w+|NewClient)\(`)
	netDialer  = regexp.MustCompile(`\bnet\.Dialer\{`)
)

// ownCalls makes the suite's client one of grpcadapter's: options and NewClient keep their names.
func ownCalls(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(grpcOption.FindAll(b, -1)); n != 6 || len(netDialer.FindAll(b, -1)) != 1 {
		t.Fatalf("%s has %d calls of package grpc that connect, want 6, and one dialer", file, n)
	}
	s := grpcOption.ReplaceAllString(string(b), "grpcadapter.$1(")
	s = netDialer.ReplaceAllString(s, "percore.Dialer{")
	s = strings.Replace(s, "[]grpc.DialOption{", "[]grpcadapter.ClientOption{", 1)
	const imports = "import (\n"
	s = strings.Replace(s, imports, imports+"\t\"github.com/percore/percore\"\n\t\"github.com/percore/percore/adapters/grpcadapter\"\n", 1)
	if err := os.WriteFile(file, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
}

// testClient runs the suite against a client.
func testClient(t *testing.T, dir, client string) {
	out, err := exec.Command(filepath.Join(dir, "connectconformance"), "--mode=client", "--conf="+filepath.Join(dir, clientFeatures),
		"--known-failing=@"+filepath.Join(dir, clientNotUnimplemented), "--", filepath.Join(dir, client)).CombinedOutput()
	numbers := result.FindSubmatch(out)
	if err != nil || numbers == nil {
		t.Fatalf("the suite: %v\n%s", err, out)
	}
	if cases, err := strconv.Atoi(string(numbers[1])); err != nil || cases < clientCases {
		t.Errorf("got %d cases (%v), want %d at least", cases, err, clientCases)
	}
	t.Logf("%s cases, of which %s passed", numbers[1], numbers[2])
}

var result = regexp.MustCompile(`(?m)^Total cases: (\d+)\n(\d+) passed, 0 failed$`)

// test runs the suite against a server.
func (w way) test(t *testing.T, dir string) {
	served := filepath.Join(t.TempDir(), "served")
	args := []string{"--mode=server", "--conf=testdata/" + w.features}
	if w.failing != "" {
		args = append(args, "--known-failing=@"+filepath.Join(dir, w.failing))
	}
	args = append(args, "--", filepath.Join(dir, "percoreserver"), w.name, served)
	out, err := exec.Command(filepath.Join(dir, "connectconformance"), args...).CombinedOutput()
	numbers := result.FindSubmatch(out)
	if err != nil || numbers == nil {
		t.Fatalf("the suite: %v\n%s", err, out)
	}
	cases, err := strconv.Atoi(string(numbers[1]))
	if err != nil || cases < w.cases {
		t.Errorf("got %d cases (%v), want %d at least", cases, err, w.cases)
	}
	t.Logf("%d cases, of which %s passed", cases, numbers[2])
	w.checkServed(t, served)
}

// checkServed checks that percore has served what it should, and nothing else, in the processes of
// the server, each of which has written a line.
func (w way) checkServed(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var streams, requests int
	for line := range strings.Lines(string(data)) {
		var s, r int
		if _, err := fmt.Sscan(line, &s, &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		streams += s
		requests += r
	}
	t.Logf("percore has served %d calls over HTTP/2, and %d past net/http over HTTP/1.1", streams, requests)
	if streams < w.streams || (streams > 0) != (w.streams > 0) {
		t.Errorf("got %d calls over HTTP/2, want %d at least", streams, w.streams)
	}
	if requests < w.requests || (requests > 0) != (w.requests > 0) {
		t.Errorf("got %d requests past net/http, want %d at least", requests, w.requests)
	}
}
