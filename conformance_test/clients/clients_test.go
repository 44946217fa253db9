package clients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// full reports whether the tests are to play all that they have, rather than a little of everything.
var full = os.Getenv("PERCORE_TEST_FULL") != ""

// messages is how many messages a stream has. In the short form it is enough for streams in clear to
// meet limits that count messages; the other transports only carry the same frames.
func messages(tr transport) int {
	switch {
	case full:
		return 100_000
	case tr.name == "plain":
		return 6_000
	}
	return 1_000
}

// pause returns for how many seconds a client pauses that reads slowly.
func pause() float64 {
	if full {
		return 5
	}
	return 0.2
}

// A scenario is what a client does. want returns its result if streams have count messages.
type scenario struct {
	name string
	want func(count int) string
	also string // a pattern of what it may be, with the judge, too
}

func always(want string) func(int) string { return func(int) string { return want } }

func perCount(format string) func(int) string {
	return func(count int) string { return fmt.Sprintf(format, count) }
}

// rounds is how often 50 calls or requests are cancelled together.
func rounds(count int) int { return max(count/1000, 5) }

// has reports whether the client has a scenario or a transport.
func (c *client) has(name string) bool { return !slices.Contains(strings.Fields(c.lacks), name) }

// calls are the scenarios of gRPC.
var calls = []scenario{
	{name: "unary", want: func(count int) string { return fmt.Sprintf("%d OK", count/4) }},
	{name: "up", want: func(count int) string { return fmt.Sprintf("%d messages, %d bytes", count, 5*count) }},
	{name: "down", want: perCount("%d messages")},
	{name: "both", want: perCount("%d messages")},
	{name: "slow", want: always("512 messages")},
	{name: "cancel", want: func(count int) string { return fmt.Sprintf("%d CANCELLED, 1 OK", 50*rounds(count)) }},
	// A client may see grpc-go's reset before its own timer has fired.
	{name: "deadline", want: always("100 DEADLINE_EXCEEDED, 1 OK"), also: `^[0-9]+ CANCELLED, [0-9]+ DEADLINE_EXCEEDED, 1 OK$`},
	{name: "big", want: always("3 the same, then RESOURCE_EXHAUSTED")},
	{name: "status", want: always("FAILED_PRECONDITION 50 % of größe ✓")},
	{name: "metadata", want: always("51 in the header, 51 in the trailer")},
	{name: "keepalive", want: always("2 messages")},
	{name: "toomanypings", want: always("RESOURCE_EXHAUSTED")},
}

// requests are the scenarios of HTTP/2.
var requests = []scenario{
	{name: "unary", want: func(count int) string { return fmt.Sprintf("%d hello", count/4) }},
	{name: "up", want: func(count int) string { return fmt.Sprintf("%d bytes", 5*count) }},
	{name: "down", want: func(count int) string { return fmt.Sprintf("%d bytes", 5*count) }},
	{name: "both", want: func(count int) string { return fmt.Sprintf("%d bytes", 5*count) }},
	{name: "slow", want: always("8388608 bytes")},
	{name: "cancel", want: func(count int) string { return fmt.Sprintf("%d cancelled, 1 hello", 50*rounds(count)) }},
	{name: "deadline", want: always("1 hello, 100 late")},
	{name: "big", want: always("8388608 up, 8388608 down")},
	{name: "refuse", want: always("413")},
	{name: "pings", want: always("100 acknowledged, 1 hello")},
}

// A client is a program.
type client struct {
	name      string
	command   []string // BIN stands for the folder of what is installed, PYTHON for the interpreter
	probe     []string // a command that succeeds if the client's library is there
	build     []string // makes BIN/name
	env       []string // the environment of all of them
	doors     []door
	scenarios []scenario
	lacks     string // names of scenarios, transports, and SCENARIO/TRANSPORT that the client does not have
	fullOnly  bool   // it takes long, and another client has the same library or one like it
}

var clients = []client{
	{
		name: "grpcio", doors: grpcDoors, scenarios: calls, lacks: "toomanypings", // it pings once a second at most
		command: []string{"PYTHON", "programs/grpcio.py"},
		probe:   []string{"PYTHON", "-c", "import grpc"},
	},
	{
		name: "grpc-js", doors: grpcDoors, scenarios: calls,
		command: []string{"node", "programs/grpcjs.js"},
		probe:   []string{"node", "-e", "require('@grpc/grpc-js')"},
	},
	{
		name: "Connect", fullOnly: true, doors: grpcDoors, scenarios: calls, lacks: "big toomanypings", // when a message was refused it ended with INTERNAL, or, from grpc-go, not within 20 s
		command: []string{"node", "programs/connect.js"},
		probe:   []string{"node", "-e", "require('@connectrpc/connect-node')"},
	},
	{
		name: "C++", fullOnly: true, doors: grpcDoors, scenarios: calls, lacks: "toomanypings",
		command: []string{"BIN/grpc"},
		build:   []string{"bash", "-c", "[[ BIN/grpc -nt programs/grpc.cc ]] || g++ -std=c++17 -O1 -o BIN/grpc programs/grpc.cc $(pkg-config --cflags --libs grpc++)"},
	},
	{
		name: "Node http2", doors: webDoors, scenarios: requests,
		command: []string{"node", "programs/http2.js"},
		probe:   []string{"node", "-v"},
	},
	{
		name: "Python h2", doors: webDoors, scenarios: requests,
		command: []string{"PYTHON", "programs/python_h2.py"},
		probe:   []string{"PYTHON", "-c", "import h2"},
	},
	{
		name: "httpx", fullOnly: true, doors: webDoors, scenarios: requests, lacks: "both pings",
		command: []string{"PYTHON", "programs/python_httpx.py"},
		probe:   []string{"PYTHON", "-c", "import h2, httpx"},
	},
	{
		name: "curl", doors: webDoors, scenarios: requests, lacks: "unary/plain unary/unix both cancel refuse pings",
		command: []string{"bash", "programs/curl.sh"}, // 7.88 makes one request of a list in clear, with any server
		probe:   []string{"curl", "--version"},
	},
	{
		name: "nghttp", doors: webDoors, scenarios: requests, lacks: "both slow cancel deadline refuse pings unix",
		command: []string{"bash", "programs/nghttp.sh"},
		probe:   []string{"bash", "-c", "h2load --version && nghttp --version"},
	},
}

// install is what a skipped test names.
const install = "install it: bash conformance_test/clients/install"

// A transport is how a client reaches a server.
type transport struct {
	name   string
	kind   testnet.Kind
	secure bool
}

var transports = []transport{
	{"plain", testnet.TCP4, false},
	{"TLS", testnet.TCP4, true},
	{"unix", testnet.Unix, false},
}

// TestClients plays the scenarios of each client to each door, two clients at a time. In the full form
// the first door, on package net, proves that what is wanted is what clients see there.
func TestClients(t *testing.T) {
	testnet.NoLeaks(t)
	turns := make(chan struct{}, 2)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			if c.fullOnly && !full {
				t.Skip("it takes long: set PERCORE_TEST_FULL=1 to run it")
			}
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			c.prepare(t)
			for _, tr := range transports {
				if c.has(tr.name) {
					t.Run(tr.name, func(t *testing.T) { c.compare(t, tr) })
				}
			}
		})
	}
}

// compare plays to all doors by one transport. The short form leaves out the judge, and all but the
// first of percore's doors over TLS and on unix sockets.
func (c *client) compare(t *testing.T, tr transport) {
	doors := c.doors
	if !full {
		doors = doors[1:]
		if tr.name != "plain" {
			doors = doors[:1]
		}
	}
	for i, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			target, ca := open(t, d, tr)
			c.play(t, c.scenariosOver(tr), messages(tr), full && i == 0, target, ca)
		})
	}
}

// scenariosOver returns what the client plays by a transport.
func (c *client) scenariosOver(tr transport) []scenario {
	var scenarios []scenario
	for _, s := range c.scenarios {
		if c.has(s.name) && c.has(s.name+"/"+tr.name) {
			scenarios = append(scenarios, s)
		}
	}
	return scenarios
}

// open opens a door. It returns what clients are told: where it is, and a file with the certificate
// or "".
func open(t *testing.T, d door, tr transport) (target, ca string) {
	l := testnet.Listen(t, d.listen, tr.kind)
	if pl, ok := l.(*percore.Listener); ok && pl.Stats().Sockets == 0 {
		t.Skip("there is no engine in this build: run it without the build tag percore_net")
	}
	var config *tls.Config
	if tr.secure {
		config, _ = testnet.TLS(t)
		ca = filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: config.Certificates[0].Certificate[0]}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop, served := d.serve(t, l, config)
	t.Cleanup(func() {
		testnet.Eventually(t, "the end of all handlers that wait", func() bool { return waiting.Load() == 0 })
		stop()
		if err := testnet.Receive(t, "Serve ending", served); err != nil {
			t.Error(err)
		}
	})
	if tr.kind == testnet.Unix {
		return "unix:" + l.Addr().String(), ca
	}
	return "127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port), ca
}

// prepare skips the test if the client is not installed, and makes its command ready.
func (c *client) prepare(t *testing.T) {
	bin, err := filepath.Abs("../../bin/clients")
	if err != nil {
		t.Fatal(err)
	}
	c.env = append(os.Environ(), "NODE_PATH="+filepath.Join(bin, "node_modules"))
	c.command, c.probe, c.build = expand(c.command, bin), expand(c.probe, bin), expand(c.build, bin)
	for _, command := range [][]string{c.probe, c.build} {
		if len(command) == 0 {
			continue
		}
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = c.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("%s does not run here; %s\n%v\n%.1000s", c.name, install, err, out)
		}
	}
}

// expand replaces the words that stand for folders and programs in a command.
func expand(command []string, bin string) []string {
	command = slices.Clone(command)
	for i := range command {
		command[i] = strings.NewReplacer("BIN", bin, "PYTHON", python()).Replace(command[i])
	}
	return command
}

// python is the interpreter that has the packages of Debian, if there is one, rather than the first in
// PATH.
var python = sync.OnceValue(func() string {
	const debians = "/usr/bin/python3"
	if _, err := os.Stat(debians); err == nil {
		return debians
	}
	return "python3"
})

// A result is a line that a program prints.
type result struct {
	Scenario, Result string
	Seconds          float64
}

// play runs the client, and compares its results with those that are wanted. The judge may give some
// others.
func (c *client) play(t *testing.T, scenarios []scenario, count int, judge bool, target, ca string) {
	args := []string{target, ca, strconv.Itoa(count), strconv.FormatFloat(pause(), 'f', -1, 64)}
	for _, s := range scenarios {
		args = append(args, s.name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(scenarios))*testnet.HangTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.command[0], slices.Concat(c.command[1:], args)...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr, cmd.WaitDelay = c.env, &stderr, time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("the client: %v", err)
	}
	results := make(map[string]result)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Errorf("got the line %q, want JSON: %v", lines.Text(), err)
		}
		results[r.Scenario] = r
	}
	for _, s := range scenarios {
		got, want := results[s.name], s.want(count)
		also := judge && s.also != "" && regexp.MustCompile(s.also).MatchString(got.Result)
		if got.Result != want && !also {
			t.Errorf("%s: got %q, want %q", s.name, got.Result, want)
		}
		t.Logf("%s: %s (%.1f s)", s.name, got.Result, got.Seconds)
	}
	if t.Failed() {
		t.Logf("the client's errors:\n%.4000s", stderr.String())
	}
}
