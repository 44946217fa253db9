package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore/examples/httparena/benchmarkpb"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestImage takes the steps of the Dockerfile without a container, starts what they make, and makes the
// requests of the profiles in meta.json.
func TestImage(t *testing.T) {
	if runtime.GOOS != "linux" || testing.Short() {
		t.Skip("it builds the image's program: to run it, be on Linux and leave -short out")
	}
	server := build(t)
	data := t.TempDir()
	config, _ := testnet.TLS(t)
	pair := testnet.WritePEM(t, config.Certificates[0])
	write(t, filepath.Join(data, "dataset.json"), dataset)
	write(t, filepath.Join(data, "static", "app.js"), "let x = 1\n")

	at := map[string]string{}
	args := []string{"-cert", pair, "-key", pair, "-data", filepath.Join(data, "dataset.json")}
	for _, name := range []string{"http", "https1", "h2c", "https", "proxy"} {
		at[name] = testnet.Reserve(t)
		if name != "proxy" {
			args = append(args, "-"+name, at[name])
		}
	}
	start(t, at["http"], server, args...)
	start(t, at["proxy"], server, "-cert", pair, "-key", pair, "-static", filepath.Join(data, "static"),
		"-https", at["proxy"], "-proxy", "http://"+at["http"])

	one, two, clear := client(t, "HTTP/1.1"), client(t, "HTTP/2.0"), client(t, "h2c")
	checks := map[string]func(*testing.T){
		"baseline":     func(t *testing.T) { checkBaseline(t, one, at["http"]) },
		"limited-conn": func(t *testing.T) { checkLimited(t, at["http"]) },
		"json":         func(t *testing.T) { checkJSON(t, one, "http://"+at["http"]) },
		"json-tls":     func(t *testing.T) { checkJSON(t, one, "https://"+at["https1"]); checkNoHTTP2(t, at["https1"]) },
		"baseline-h2":  func(t *testing.T) { checkSum(t, two, "https://"+at["https"]+"/baseline2") },
		"baseline-h2c": func(t *testing.T) { checkSum(t, clear, "http://"+at["h2c"]+"/baseline2"); checkOnlyHTTP2(t, at["h2c"]) },
		"json-h2c":     func(t *testing.T) { checkJSON(t, clear, "http://"+at["h2c"]) },
		"unary-grpc":   func(t *testing.T) { checkUnary(t, dial(t, at["http"], insecure.NewCredentials())) },
		"stream-grpc":  func(t *testing.T) { checkStream(t, dial(t, at["http"], insecure.NewCredentials())) },
		"unary-grpc-tls": func(t *testing.T) {
			checkUnary(t, dial(t, at["https"], credentials.NewTLS(trusting())))
		},
		"stream-grpc-tls": func(t *testing.T) {
			checkStream(t, dial(t, at["https"], credentials.NewTLS(trusting())))
		},
		"echo-ws":    func(t *testing.T) { checkEcho(t, at["http"]) },
		"gateway-64": func(t *testing.T) { checkGateway(t, two, "https://"+at["proxy"]) },
	}
	for _, profile := range profiles(t) {
		check := checks[profile]
		if check == nil {
			t.Errorf("meta.json: the profile %s is not checked here", profile)
			continue
		}
		delete(checks, profile)
		t.Run(profile, check)
	}
	for profile := range checks {
		t.Errorf("meta.json lacks the profile %s", profile)
	}
}

// build takes the steps of the Dockerfile's first stage, in the checkout that it clones, and returns the
// program that the second stage starts.
func build(t *testing.T) string {
	t.Helper()
	file, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "server")
	here := func(path string) string { return strings.Replace(path, "/percore", root, 1) }
	dir, built, copied := "", false, false
	for line := range strings.Lines(string(file)) {
		step, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case step == "WORKDIR":
			dir = here(arg)
		case step == "COPY" && arg == ". .":
			if want, _ := filepath.Abs("."); dir != want {
				t.Errorf("the entry is copied to %s, want %s", dir, want)
			}
		case step == "RUN" && strings.HasPrefix(arg, "git clone "):
			if want := "git clone --depth 1 https://github.com/percore/percore /percore"; arg != want {
				t.Errorf("%s, want %s", arg, want)
			}
		case step == "RUN":
			cmd := exec.Command("sh", "-c", strings.Replace(arg, " /server ", " "+out+" ", 1))
			cmd.Dir = dir
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", arg, err, said)
			}
			built = true
		case step == "COPY":
			copied = arg == "--from=build /server /server"
		case step == "ENTRYPOINT" && (arg != `["/server"]` || !copied || !built):
			t.Fatalf("the image starts %s, which is not there", arg)
		}
	}
	return out
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// start starts the program, waits until it serves addr, and ends it with the test.
func start(t *testing.T, addr, program string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := testnet.Receive(t, "the program's end", ended); err != nil {
			t.Errorf("%v\n%s", err, said.String())
		}
	})
	testnet.Eventually(t, addr, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// profiles returns those of meta.json.
func profiles(t *testing.T) []string {
	t.Helper()
	file, err := os.ReadFile("meta.json")
	if err != nil {
		t.Fatal(err)
	}
	var meta struct{ Tests []string }
	if err := json.Unmarshal(file, &meta); err != nil {
		t.Fatal(err)
	}
	return meta.Tests
}

func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// client returns a client that speaks one protocol.
func client(t *testing.T, protocol string) *http.Client {
	transport := &http.Transport{TLSClientConfig: trusting(), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
	transport.Protocols.SetUnencryptedHTTP2(protocol == "h2c")
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testnet.HangTimeout}
}

// get returns the body, and checks the type of the answer.
func get(t *testing.T, c *http.Client, url, contentType string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), contentType) {
		t.Fatalf("%s: %s, type %q, %v", url, resp.Status, resp.Header.Get("Content-Type"), err)
	}
	return string(body)
}

// checkSum asks for the sum of numbers that the server can't know beforehand.
func checkSum(t *testing.T, c *http.Client, url string) {
	t.Helper()
	for range 3 {
		a, b := rand.IntN(1000), rand.IntN(1000)
		if got := get(t, c, fmt.Sprintf("%s?a=%d&b=%d", url, a, b), "text/plain"); got != fmt.Sprint(a+b) {
			t.Errorf("%d and %d are %q", a, b, got)
		}
	}
}

// checkBaseline also sends a number in the body, with and without its length, and in pieces.
func checkBaseline(t *testing.T, c *http.Client, addr string) {
	checkSum(t, c, "http://"+addr+"/baseline11")
	for _, request := range []string{
		"POST /baseline11?a=13&b=42 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n|20",
		"POST /baseline11?a=13&b=42 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n20\r\n|0\r\n\r\n",
		"POST /basel|ine11?a=13&b=42 HTTP/1.1\r\nHo|st: h\r\nContent-Length: 2\r\n\r\n2|0",
	} {
		nc := connect(t, addr)
		for part := range strings.SplitSeq(request, "|") {
			if _, err := io.WriteString(nc, part); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "75" {
			t.Errorf("%q: got %q, %v", request, got, err)
		}
	}
}

// checkLimited makes ten requests on each of some connections.
func checkLimited(t *testing.T, addr string) {
	for range 5 {
		get := testnet.KeepAlive(t, connect(t, addr))
		for range 10 {
			if got := get("/baseline11?a=13&b=42"); got != "55" {
				t.Fatalf("got %q", got)
			}
		}
	}
}

func connect(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const dataset = `[
{"id":1,"name":"Lamp","category":"home","price":328,"quantity":15,"active":true,"tags":["sale"],"rating":{"score":48,"count":53}},
{"id":2,"name":"Rope","category":"tools","price":7,"quantity":3,"active":false,"tags":[],"rating":{"score":1,"count":2}}
]`

func checkJSON(t *testing.T, c *http.Client, url string) {
	t.Helper()
	for _, test := range []struct {
		path   string
		totals []int
	}{
		{"/json/1?m=3", []int{328 * 15 * 3}},
		{"/json/2?m=5", []int{328 * 15 * 5, 7 * 3 * 5}},
		{"/json/50", []int{328 * 15, 7 * 3}},
		{"/json/0?m=1", []int{}},
	} {
		var got struct {
			Items []struct {
				Name  string
				Tags  []string
				Total int
			}
			Count int
		}
		if err := json.Unmarshal([]byte(get(t, c, url+test.path, "application/json")), &got); err != nil {
			t.Fatal(err)
		}
		totals := []int{}
		for _, item := range got.Items {
			totals = append(totals, item.Total)
		}
		if !slices.Equal(totals, test.totals) || got.Count != len(totals) || len(totals) > 0 && (got.Items[0].Name != "Lamp" || got.Items[0].Tags[0] != "sale") {
			t.Errorf("%s: got %+v, want the totals %v", test.path, got, test.totals)
		}
	}
}

// checkNoHTTP2: the port of HTTP/1.1 doesn't agree to anything else.
func checkNoHTTP2(t *testing.T, addr string) {
	config := trusting()
	config.NextProtos = []string{"h2", "http/1.1"}
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the protocol is %q", got)
	}
}

// checkOnlyHTTP2: the port of h2c doesn't answer HTTP/1.1 as if it were another.
func checkOnlyHTTP2(t *testing.T, addr string) {
	resp, err := client(t, "HTTP/1.1").Get("http://" + addr + "/baseline2?a=1&b=1")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("HTTP/1.1 is served, too")
	}
}

func dial(t *testing.T, addr string, creds credentials.TransportCredentials) benchmarkpb.BenchmarkServiceClient {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return benchmarkpb.NewBenchmarkServiceClient(cc)
}

func checkUnary(t *testing.T, c benchmarkpb.BenchmarkServiceClient) {
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	if reply, err := c.GetSum(ctx, &benchmarkpb.SumRequest{A: 13, B: 42}); err != nil || reply.Result != 55 {
		t.Errorf("got %v, %v", reply, err)
	}
}

func checkStream(t *testing.T, c benchmarkpb.BenchmarkServiceClient) {
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	stream, err := c.StreamSum(ctx, &benchmarkpb.StreamRequest{A: 13, B: 42, Count: 5000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(5000) {
		if reply, err := stream.Recv(); err != nil || reply.Result != 55+i {
			t.Fatalf("message %d: %v, %v", i, reply, err)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v", err)
	}
}

func checkEcho(t *testing.T, addr string) {
	ws, resp, err := websocket.DefaultDialer.Dial("ws://"+addr+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer ws.Close()
	for _, kind := range []int{websocket.TextMessage, websocket.BinaryMessage} {
		if err := ws.WriteMessage(kind, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if k, got, err := ws.ReadMessage(); err != nil || k != kind || string(got) != "hello" {
			t.Errorf("got %d %q, %v", k, got, err)
		}
	}
}

// checkGateway: the proxy serves files, and forwards the rest.
func checkGateway(t *testing.T, c *http.Client, url string) {
	if got := get(t, c, url+"/static/app.js", "text/javascript"); got != "let x = 1\n" {
		t.Errorf("the file is %q", got)
	}
	checkSum(t, c, url+"/baseline2")
	checkJSON(t, c, url)
	if got := get(t, c, url+"/async-db?min=10&max=50&limit=10", "application/json"); strings.TrimSpace(got) != `{"items":[],"count":0}` {
		t.Errorf("without a database: %q", got)
	}
}
