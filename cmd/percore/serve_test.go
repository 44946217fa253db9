package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/cmd/percore/internal/echopb"
	"github.com/percore/percore/internal/testnet"
)

func TestServeDefaults(t *testing.T) {
	got, err := parseServeFlags(nil, io.Discard)
	want := serveOptions{httpAddress: "127.0.0.1:8080", grpcAddress: "127.0.0.1:9090", dir: ".", drain: 10 * time.Second, adminAddress: "127.0.0.1:6060"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("no flags: got %+v, %v, want %+v, nil", got, err, want)
	}
}

func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"help"}, "Usage: percore COMMAND"},
		{[]string{"-h"}, "Usage: percore COMMAND"},
		{[]string{"--help"}, "Usage: percore COMMAND"},
		{[]string{"serve", "-h"}, "Usage: percore serve"},
		{[]string{"serve", "--help"}, "Usage: percore serve"},
		{[]string{"help", "serve"}, "Usage: percore serve"},
		{[]string{"version"}, "percore "},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			stdout, stderr, status := runCommand(t, tt.args...)
			if status != exitOK || stderr != "" || !strings.Contains(stdout, tt.want) {
				t.Errorf("got status %d, stdout %q, stderr %q, want 0, something with %q, nothing",
					status, stdout, stderr, tt.want)
			}
		})
	}
}

// A user's mistake is answered by one line that names it, and by status 2 if
// the command line is at fault, 1 if the machine is.
func TestMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"unknown command", []string{"fly"}, exitUsage, `unknown command "fly"`},
		{"help for unknown command", []string{"help", "fly"}, exitUsage, `unknown command "fly"`},
		{"unknown flag", []string{"serve", "-frob"}, exitUsage, "-frob"},
		{"loops not a number", []string{"serve", "-loops", "many"}, exitUsage, "-loops"},
		{"loops negative", []string{"serve", "-loops", "-1"}, exitFailure, "-loops -1"},
		{"drain negative", []string{"serve", "-drain", "-1s"}, exitUsage, "-drain -1s"},
		{"limit negative", []string{"serve", "-max-conns", "-1"}, exitUsage, "-max-conns -1"},
		{"no network", []string{"serve", "-proxy-protocol", "10.0.0.0/8,10.0.0.1"}, exitUsage, "\"10.0.0.1\" is not a network"},
		{"certificate without key", []string{"serve", "-tls", "-cert", file}, exitUsage, "-key"},
		{"certificate without TLS", []string{"serve", "-cert", file, "-key", file}, exitUsage, "-tls"},
		{"certificate that is none", []string{"serve", "-tls", "-cert", file, "-key", file, "-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-admin", ""}, exitFailure, file},
		{"argument", []string{"serve", "public"}, exitUsage, `"public"`},
		{"http without port", []string{"serve", "-http", "localhost"}, exitUsage, "-http"},
		{"missing directory", []string{"serve", "-dir", file + ".d"}, exitFailure, file + ".d"},
		{"port out of range", []string{"serve", "-http", "127.0.0.1:65536"}, exitFailure, "65536"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, status := runCommand(t, tt.args...)
			if status != tt.status {
				t.Errorf("exit status: got %d, want %d", status, tt.status)
			}
			checkOneLine(t, stdout, stderr, tt.want)
		})
	}
}

func TestNoCommand(t *testing.T) {
	stdout, stderr, status := runCommand(t)
	if status != exitUsage || stdout != "" || !strings.Contains(stderr, "Usage: percore COMMAND") {
		t.Errorf("got status %d, stdout %q, stderr %q, want %d, nothing, the usage", status, stdout, stderr, exitUsage)
	}
}

func TestServeBusyPort(t *testing.T) {
	busy := testnet.Listen(t, net.Listen, testnet.TCP4).Addr().String()
	stdout, stderr, status := runCommand(t, "serve", "-dir", t.TempDir(), "-http", "127.0.0.1:0", "-grpc", busy, "-admin", "")
	if status != exitFailure {
		t.Errorf("exit status: got %d, want %d", status, exitFailure)
	}
	checkOneLine(t, stdout, stderr, busy+": bind: address already in use; choose another address with -http, -grpc or -admin")
}

// checkOneLine checks that a failed command said nothing but one line on
// stderr, with want in it.
func checkOneLine(t *testing.T, stdout, stderr, want string) {
	t.Helper()
	if stdout != "" {
		t.Errorf("stdout: got %q, want nothing", stdout)
	}
	if strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "\n") || !strings.HasPrefix(stderr, "percore") {
		t.Errorf("stderr: got %q, want one line that begins with the command", stderr)
	}
	if !strings.Contains(stderr, want) {
		t.Errorf("stderr: got %q, want %q in it", stderr, want)
	}
}

func TestServePrintsReachableAddresses(t *testing.T) {
	for want, addr := range map[string]net.Addr{
		"127.0.0.1:80":           &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80},
		"[::1]:80":               &net.TCPAddr{IP: net.IPv6loopback, Port: 80},
		"localhost:80":           &net.TCPAddr{IP: net.IPv6unspecified, Port: 80},
		"localhost:81":           &net.TCPAddr{Port: 81},
		"unix:/run/percore/grpc": &net.UnixAddr{Name: "/run/percore/grpc", Net: "unix"}, // one of systemd's
	} {
		if got := dialAddress(addr); got != want {
			t.Errorf("listening on %s: got %s, want %s", addr, got, want)
		}
	}
}

func TestServeSummary(t *testing.T) {
	for name, setting := range map[string]string{"percore": "", "net": "engine=net"} {
		t.Run(name, func(t *testing.T) {
			if name == "percore" {
				needEngine(t)
			}
			t.Setenv("PERCOREDEBUG", setting)
			s := startServers(t, "-loops", "3")
			if err := os.WriteFile(filepath.Join(s.dir, "file"), make([]byte, 20_000), 0o600); err != nil {
				t.Fatal(err)
			}
			get := s.keepAlive()
			for range 3 {
				get("/file")
			}
			for range 2 {
				if _, err := echopb.NewEchoClient(s.grpc).Unary(s.ctx, &echopb.EchoRequest{}); err != nil {
					t.Fatalf("Unary: %v", err)
				}
			}
			s.stop()
			wants := []string{`uptime +\d`, `requests +5 \(3 HTTP, 2 gRPC\)\n`}
			if name == "percore" { // net/http itself reads the beginning of a file whose type it doesn't know
				wants = append(wants, `on 3 loops\n`, `past net/http +3 over HTTP/1.1`, `bytes by sendfile +5\d{4}\n`, `when it began to stop\n(.*\n)*connections waiting +2\n`)
			} else {
				wants = append(wants, `on package net\n`, `past net/http +0 over HTTP/1.1`)
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
	s.stderr.await(t, "msg=stopping")
	if err := call.Send(&echopb.EchoRequest{Message: "late"}); err != nil {
		t.Errorf("sending on the open call: %v", err)
	}
	if got, err := call.Recv(); err != nil || got.GetMessage() != "late" {
		t.Errorf("the open call: got %q, %v, want %q, nil", got.GetMessage(), err, "late")
	}
	if err := call.CloseSend(); err != nil {
		t.Errorf("closing the open call: %v", err)
	}
	if _, err := call.Recv(); err != io.EOF {
		t.Errorf("the end of the open call: got %v, want EOF", err)
	}
	if _, err := io.ReadAll(clock.Body); err != nil {
		t.Errorf("the clock: got %v, want an orderly end", err)
	}
	s.waitOrderly()
	if strings.Contains(s.stderr.String(), "cut off") {
		t.Errorf("got log\n%s\nwant nothing to be cut off", s.stderr)
	}
}

// openCall opens a bidirectional call and sees it answer once.
func (s *servers) openCall() echopb.Echo_BidiStreamClient {
	s.t.Helper()
	call, err := echopb.NewEchoClient(s.grpc).BidiStream(s.ctx)
	if err != nil {
		s.t.Fatalf("BidiStream: %v", err)
	}
	if err := call.Send(&echopb.EchoRequest{Message: "early"}); err != nil {
		s.t.Fatalf("BidiStream: Send: %v", err)
	}
	if got, err := call.Recv(); err != nil || got.GetMessage() != "early" {
		s.t.Fatalf("BidiStream: Recv: got %q, %v, want %q, nil", got.GetMessage(), err, "early")
	}
	return call
}
