package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestHelp(t *testing.T) {
	for line, want := range map[string]string{
		"help":         "Usage: percore COMMAND",
		"-h":           "Usage: percore COMMAND",
		"--help":       "Usage: percore COMMAND",
		"serve -h":     "Usage: percore serve",
		"serve --help": "Usage: percore serve",
		"help serve":   "Usage: percore serve",
		"version":      "percore ",
	} {
		stdout, stderr, status := runCommand(t, strings.Fields(line)...)
		if status != exitOK || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("%s: got status %d, stdout %q, stderr %q, want 0, something with %q, nothing", line, status, stdout, stderr, want)
		}
	}
}

// A user's mistake is answered by one line that names it, and by status 2 if
// the command line is at fault, 1 if the machine is.
func TestMistakes(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	busy := testnet.Listen(t, net.Listen, testnet.TCP4).Addr().String()
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"fly"}, exitUsage, `unknown command "fly"`},
		{[]string{"help", "fly"}, exitUsage, `unknown command "fly"`},
		{[]string{"serve", "-frob"}, exitUsage, "-frob"},
		{[]string{"serve", "-max-conns", "many"}, exitUsage, "-max-conns"},
		{[]string{"serve", "-max-conns", "-1", "-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-admin", ""}, exitFailure, "MaxConns"},
		{[]string{"serve", "-drain", "-1s"}, exitFailure, "Drain is -1s"},
		{[]string{"serve", "-proxy-protocol", "10.0.0.0/8,10.0.0.1"}, exitUsage, `"10.0.0.1"`},
		{[]string{"serve", "public"}, exitUsage, `"public"`},
		{[]string{"serve", "-http", "localhost"}, exitFailure, "localhost: missing port"},
		{[]string{"serve", "-dir", missing}, exitFailure, missing},
		{[]string{"serve", "-http", "127.0.0.1:65536"}, exitFailure, "65536"},
		{[]string{"serve", "-http", "127.0.0.1:0", "-grpc", busy, "-admin", ""}, exitFailure, busy + ": bind: address already in use; choose another address with -http, -grpc or -admin"},
	} {
		stdout, stderr, status := runCommand(t, tt.args...)
		if status != tt.status || stdout != "" {
			t.Errorf("%q: got exit status %d and stdout %q, want %d and nothing", tt.args, status, stdout, tt.status)
		}
		if strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") || !strings.HasPrefix(stderr, "percore") || !strings.Contains(stderr, tt.want) {
			t.Errorf("%q: got stderr %q, want one line that begins with the command, and %q in it", tt.args, stderr, tt.want)
		}
	}
}

func TestNoCommand(t *testing.T) {
	stdout, stderr, status := runCommand(t)
	if status != exitUsage || stdout != "" || !strings.Contains(stderr, "Usage: percore COMMAND") {
		t.Errorf("got status %d, stdout %q, stderr %q, want %d, nothing, the usage", status, stdout, stderr, exitUsage)
	}
}

func TestServeSummary(t *testing.T) {
	for name, setting := range map[string]string{"percore": "", "net": "engine=net"} {
		t.Run(name, func(t *testing.T) {
			if name == "percore" {
				needEngine(t)
			}
			t.Setenv("PERCOREDEBUG", setting)
			s := startServers(t)
			if err := os.WriteFile(filepath.Join(s.dir, "file"), make([]byte, 20_000), 0o600); err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.baseURL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			get := testnet.KeepAlive(t, conn)
			for range 3 {
				get("/file")
			}
			for range 2 {
				if _, err := s.callUnary(""); err != nil {
					t.Fatalf("unary call: %v", err)
				}
			}
			s.stop()
			wants := []string{`on percore\n`, `uptime +\d`, `requests +3 over HTTP/1.1, 0 over HTTP/2, 2 calls of gRPC\n`,
				// net/http itself reads the beginning of a file whose type it doesn't know
				`bytes by sendfile +5\d{4}\n`, `when it began to stop\n(.*\n)*connections waiting +2\n`}
			if name == "net" {
				wants = []string{`on package net\n`, `requests +0 over HTTP/1.1`}
			}
			for _, want := range wants {
				if got := s.stdout.String(); !regexp.MustCompile(want).MatchString(got) {
					t.Errorf("got output\n%s\nwant something that matches %q", got, want)
				}
			}
		})
	}
}

// needEngine skips the test where percore's listeners are net's.
func needEngine(t *testing.T) {
	t.Helper()
	l, ok := testnet.Listen(t, percore.Listen, testnet.TCP4).(*percore.Listener)
	if !ok || l.Stats().Sockets == 0 {
		t.Skip("percore is net here")
	}
}

// A call that is under way when the signal comes is completed; the clock, which would never end by
// itself, ends.
func TestServeFinishesWhatIsUnderWay(t *testing.T) {
	s := startServers(t)
	call := s.openCall()
	clock := s.do("GET", "/clock", nil, nil)
	defer clock.Body.Close()
	s.signal(syscall.SIGTERM)
	testnet.Eventually(t, "the server's stop", func() bool { return s.stderr.Has("msg=stopping") })
	s.talk(call, "late")
	s.endCall(call)
	if _, err := io.ReadAll(clock.Body); err != nil {
		t.Errorf("the clock: got %v, want an orderly end", err)
	}
	s.waitOrderly()
	if s.stderr.Has("cut off") {
		t.Errorf("got log\n%s\nwant nothing to be cut off", &s.stderr)
	}
}

// openCall opens a bidirectional call and sees it answer once.
func (s *servers) openCall() pb.BenchmarkService_StreamingCallClient {
	s.t.Helper()
	call, err := pb.NewBenchmarkServiceClient(s.grpc).StreamingCall(s.ctx)
	if err != nil {
		s.t.Fatalf("StreamingCall: %v", err)
	}
	s.talk(call, "early")
	return call
}

// talk sends a message on an open call, and receives it.
func (s *servers) talk(call pb.BenchmarkService_StreamingCallClient, text string) {
	s.t.Helper()
	if err := call.Send(request(text)); err != nil {
		s.t.Fatalf("StreamingCall: Send: %v", err)
	}
	if got, err := call.Recv(); err != nil || string(got.GetPayload().GetBody()) != text {
		s.t.Fatalf("StreamingCall: Recv: got %q, %v, want %q, nil", got.GetPayload().GetBody(), err, text)
	}
}

func (s *servers) endCall(call pb.BenchmarkService_StreamingCallClient) {
	s.t.Helper()
	if err := call.CloseSend(); err != nil {
		s.t.Errorf("CloseSend: %v", err)
	}
	if _, err := call.Recv(); err != io.EOF {
		s.t.Errorf("the end of the call: got %v, want EOF", err)
	}
}

func TestServeAdmin(t *testing.T) {
	s := startServers(t)
	if resp, _ := s.fetch("GET", "/metrics", nil, nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the public address: got %s, want 404 for the pages of the admin server", resp.Status)
	}
	s.baseURL = s.adminURL
	for path, want := range map[string]string{
		"/metrics":                    "\npercore_open_connections ",
		"/debug/percore":              "<h2>Loops</h2>",
		"/debug/percore?":             "gRPC: being served", // a chart of a figure of another module
		"/debug/percore?format=json":  `"Listeners"`,
		"/debug/pprof/":               "goroutine",
		"/debug/pprof/cmdline":        "",
		"/debug/pprof/heap?debug=1":   "heap profile",
		"/debug/pprof/symbol":         "num_symbols",
		"/debug/pprof/trace?seconds=": "",
	} {
		if resp, body := s.fetch("GET", path, nil, nil); resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %s, %d bytes, want 200 and %q", path, resp.Status, len(body), want)
		}
	}
	if resp, _ := s.fetch("GET", "/other", nil, nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("/other: got %s, want 404", resp.Status)
	}
	// The pages are for addresses and localhost, not for a name that another's DNS leads here.
	for _, path := range []string{"/debug/pprof/", "/metrics"} {
		req, err := http.NewRequest("GET", s.adminURL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "evil.example:6060"
		resp, err := s.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s of %s: got %s, want 403", path, req.Host, resp.Status)
		}
	}
	s.stop()
}
