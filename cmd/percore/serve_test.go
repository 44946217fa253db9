package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/cmd/percore/internal/echopb"
	"github.com/percore/percore/internal/testnet"
)

func TestServeDefaults(t *testing.T) {
	got, err := parseServeFlags(nil)
	want := serveOptions{httpAddress: "127.0.0.1:8080", grpcAddress: "127.0.0.1:9090", dir: ".", drain: 10 * time.Second, adminAddress: "127.0.0.1:6060"}
	if err != nil || got != want {
		t.Errorf("no flags: got %+v, %v, want %+v, nil", got, err, want)
	}
}

// A flag that the help leaves out, or gives another default, is found here.
func TestServeHelpNamesEveryFlag(t *testing.T) {
	for _, name := range []string{"http", "grpc", "dir", "loops", "tls", "cert", "key", "tls-ticket-keys", "max-conns", "sample-tcp", "max-age", "proxy-protocol", "drain", "drain-delay", "any-parent", "admin", "v"} {
		if !strings.Contains(serveUsage, "\n  -"+name+" ") {
			t.Errorf("the help does not explain -%s", name)
		}
	}
	for _, value := range []string{defaultHTTPAddress, defaultGRPCAddress, defaultAdminAddress, "(default .)", "(default 0"} {
		if !strings.Contains(serveUsage, value) {
			t.Errorf("the help does not tell %q", value)
		}
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
		{"too many loops", []string{"serve", "-loops", "1025"}, exitFailure, "-loops 1025"},
		{"age not a time", []string{"serve", "-max-age", "old"}, exitUsage, "-max-age"},
		{"drain negative", []string{"serve", "-drain", "-1s"}, exitUsage, "-drain -1s"},
		{"drain delay negative", []string{"serve", "-drain-delay", "-1s"}, exitUsage, "-drain-delay -1s"},
		{"age negative", []string{"serve", "-max-age", "-1s"}, exitUsage, "-max-age -1s"},
		{"limit negative", []string{"serve", "-max-conns", "-1"}, exitUsage, "-max-conns -1"},
		{"sample negative", []string{"serve", "-sample-tcp", "-1"}, exitUsage, "-sample-tcp -1"},
		{"no network", []string{"serve", "-proxy-protocol", "10.0.0.0/8,10.0.0.1"}, exitUsage, "\"10.0.0.1\" is not a network"},
		{"certificate without key", []string{"serve", "-tls", "-cert", file}, exitUsage, "-key"},
		{"certificate without TLS", []string{"serve", "-cert", file, "-key", file}, exitUsage, "-tls"},
		{"certificate that is none", []string{"serve", "-tls", "-cert", file, "-key", file, "-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-admin", ""}, exitFailure, file},
		{"admin without port", []string{"serve", "-admin", "localhost"}, exitUsage, "-admin"},
		{"argument", []string{"serve", "public"}, exitUsage, `"public"`},
		{"http without port", []string{"serve", "-http", "localhost"}, exitUsage, "-http"},
		{"grpc without host", []string{"serve", "-grpc", "9090"}, exitUsage, "-grpc"},
		{"missing value", []string{"serve", "-dir"}, exitUsage, "-dir"},
		{"missing directory", []string{"serve", "-dir", file + ".d"}, exitFailure, file + ".d"},
		{"file as directory", []string{"serve", "-dir", file}, exitFailure, file},
		{"port out of range", []string{"serve", "-http", "127.0.0.1:65536"}, exitFailure, "65536"},
		{"foreign address", []string{"serve", "-grpc", "192.0.2.1:0", "-http", "127.0.0.1:0"}, exitFailure, "192.0.2.1"},
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
	for _, name := range []string{"http", "grpc", "admin"} {
		t.Run(name, func(t *testing.T) {
			args := []string{"serve", "-dir", t.TempDir(),
				"-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-admin", "", "-" + name, busy}
			stdout, stderr, status := runCommand(t, args...)
			if status != exitFailure {
				t.Errorf("exit status: got %d, want %d", status, exitFailure)
			}
			checkOneLine(t, stdout, stderr, busy+": bind: address already in use")
			checkOneLine(t, stdout, stderr, "-"+name)
		})
	}
}

// Two servers of the same command must not share a port unnoticed, which
// SO_REUSEPORT would let them.
func TestServeTwiceOnOnePort(t *testing.T) {
	first := startServers(t)
	address := strings.TrimPrefix(first.baseURL, "http://")
	stdout, stderr, status := runCommand(t, "serve", "-dir", t.TempDir(), "-grpc", "127.0.0.1:0", "-admin", "", "-http", address)
	if status != exitFailure {
		t.Errorf("exit status of the second: got %d, want %d", status, exitFailure)
	}
	checkOneLine(t, stdout, stderr, address+": bind: address already in use")
	if resp, _ := first.fetch("GET", "/", nil, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("the first, afterwards: got %s, want 200", resp.Status)
	}
	first.stop()
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
	for _, tt := range []struct{ addr, dial string }{
		{"127.0.0.1:80", "127.0.0.1:80"},
		{"[::1]:80", "[::1]:80"},
		{"0.0.0.0:80", "localhost:80"},
		{"[::]:80", "localhost:80"},
		{":80", "localhost:80"},
	} {
		addr, err := net.ResolveTCPAddr("tcp", tt.addr)
		if err != nil {
			t.Fatalf("%s: %v", tt.addr, err)
		}
		if got := dialAddress(addr); got != tt.dial {
			t.Errorf("listening on %s: got %s, want %s", tt.addr, got, tt.dial)
		}
		if got, want := baseURL(addr), "http://"+tt.dial; got != want {
			t.Errorf("listening on %s: got %s, want %s", tt.addr, got, want)
		}
	}
	socket := &net.UnixAddr{Name: "/run/percore/grpc", Net: "unix"} // one of systemd's
	if got, want := dialAddress(socket), "unix:/run/percore/grpc"; got != want {
		t.Errorf("listening on %s: got %s, want %s, which gRPC's clients dial", socket, got, want)
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
				wants = append(wants, `on 3 loops\n`, `past net/http +3 over HTTP/1.1`, `bytes by sendfile +5\d{4}\n$`)
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

// The summary says how many requests the adapter has served, plain and odd ones.
func TestServeFastPath(t *testing.T) {
	needEngine(t)
	s := startServers(t)
	get := s.keepAlive()
	for range 2 {
		get("/echo")
	}
	const text = "in chunks"
	if _, echoed := s.fetch("POST", "/echo", nil, io.MultiReader(strings.NewReader(text))); echoed != text {
		t.Errorf("the echo: got %q, want %q", echoed, text)
	}
	s.stop()
	const want = `past net/http +3 over HTTP/1.1,`
	if got := s.stdout.String(); !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("got output\n%s\nwant something that matches %q", got, want)
	}
}

// One port serves both versions, in clear and with -tls, and the summary counts
// what the adapter served.
func TestServeHTTP2(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		summary string
	}{
		{nil, `, 3 over HTTP/2`},
		{[]string{"-tls"}, `, 3 over HTTP/2`},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			needEngine(t)
			s := startServers(t, tt.args...)
			var config *tls.Config
			if strings.HasPrefix(s.baseURL, "https:") {
				config = &tls.Config{InsecureSkipVerify: true} // its certificate is made for this run
			}
			client := testnet.HTTP2Client(t, config)
			for n := range 3 {
				text := fmt.Sprint("text ", n)
				resp, err := client.Post(s.baseURL+"/echo", "text/plain", strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				echoed, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(echoed) != text || resp.ProtoMajor != 2 {
					t.Errorf("the echo: got %q over %s, %v, want %q over HTTP/2", echoed, resp.Proto, err, text)
				}
			}
			transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(true)
			resp, err := (&http.Client{Transport: transport}).Get(s.baseURL + "/echo")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.ProtoMajor != 1 || resp.StatusCode != http.StatusOK {
				t.Errorf("got %s over %s, want 200 over HTTP/1.1", resp.Status, resp.Proto)
			}
			transport.CloseIdleConnections()
			client.CloseIdleConnections()
			s.stop()
			if got := s.stdout.String(); !regexp.MustCompile(tt.summary + `\n`).MatchString(got) {
				t.Errorf("got output\n%s\nwant something that matches %q", got, tt.summary)
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

// Requests and calls that are under way when the signal comes are completed;
// the clock, which would never end by itself, ends.
func TestServeFinishesWhatIsUnderWay(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			s := startServers(t)
			call := s.openCall()
			upload, echoed := s.openEcho()
			clock := s.do("GET", "/clock?interval=1h", nil, nil)
			defer clock.Body.Close()

			s.signal(sig)
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
			_, _ = io.WriteString(upload, "late")
			_ = upload.Close()
			if got, err := io.ReadAll(echoed); err != nil || string(got) != "late" {
				t.Errorf("the rest of the echo: got %q, %v, want %q, nil", got, err, "late")
			}
			if _, err := io.ReadAll(clock.Body); err != nil {
				t.Errorf("the clock: got %v, want an orderly end", err)
			}
			s.waitOrderly()
			if strings.Contains(s.stderr.String(), "cut off") {
				t.Errorf("got log\n%s\nwant nothing to be cut off", s.stderr)
			}
		})
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

// openEcho begins a request to /echo and sees the first bytes come back, while
// the request goes on: bytes written to upload can be read from echoed.
func (s *servers) openEcho() (upload io.WriteCloser, echoed io.Reader) {
	s.t.Helper()
	body, upload := io.Pipe()
	s.t.Cleanup(func() { _ = upload.Close() })
	early := make(chan error, 1)
	go func() {
		_, err := io.WriteString(upload, "early")
		early <- err
	}()
	resp := s.do("POST", "/echo", nil, body)
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	got := make([]byte, len("early"))
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != "early" {
		s.t.Fatalf("the first bytes of the echo: got %q, %v, want %q, nil", got, err, "early")
	}
	if err := testnet.Receive(s.t, "writing the first bytes", early); err != nil {
		s.t.Fatalf("writing the first bytes: %v", err)
	}
	return upload, resp.Body
}

func TestServeSecondInterruptKills(t *testing.T) {
	s := startServers(t)
	s.openCall() // never finished
	s.signal(os.Interrupt)
	s.stderr.await(t, "msg=stopping")
	s.signal(os.Interrupt)
	s.wait()
	if !s.killedBy(syscall.SIGINT) {
		t.Errorf("got %v, want the process killed by the interrupt", s.cmd.ProcessState)
	}
}

// Connections that clients have closed leave no descriptor in the server.
func TestServeClosesConnections(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	s := startServers(t)
	oneOfEach := func() {
		s.fetch("GET", "/", nil, nil)
		if _, err := echopb.NewEchoClient(s.grpc).Unary(s.ctx, &echopb.EchoRequest{}); err != nil {
			t.Fatalf("Unary: %v", err)
		}
	}
	oneOfEach() // lets the process open the descriptors that it keeps for good
	before := s.openFDs()
	for range 20 {
		s.http.CloseIdleConnections()
		oneOfEach()
	}
	s.disconnect()
	testnet.Eventually(t, "the server closing its connections", func() bool { return s.openFDs() < before })
	s.stop()
}

// inProcess returns the options of servers in this process, so that their leftovers are seen.
func inProcess(t *testing.T) serveOptions {
	return serveOptions{
		httpAddress: "127.0.0.1:0", grpcAddress: "127.0.0.1:0", dir: t.TempDir(), drain: testnet.HangTimeout,
	}
}

// Requests still under way at the limit are cut off, and nothing of them stays.
func TestServeCutsOffAtTheLimit(t *testing.T) {
	testnet.NoLeaks(t)
	opts := inProcess(t)
	opts.drain = 10 * time.Millisecond
	d, stop := runDemo(t, opts, io.Discard)
	s := &servers{command: &command{t: t}, baseURL: baseURL(d.httpListener.Addr())}
	s.connect(d.grpcListener.Addr().String())
	call := s.openCall()
	_, echoed := s.openEcho()

	if err := stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an error that says that requests were cut off", err)
	}

	if _, err := call.Recv(); err == nil || err == io.EOF {
		t.Errorf("the call: got %v, want it cut off", err)
	}
	if _, err := io.ReadAll(echoed); err == nil {
		t.Errorf("the request: got an orderly end, want it cut off")
	}
}

func TestServeStopsWhenAServerFails(t *testing.T) {
	testnet.NoLeaks(t)
	d, stop := runDemo(t, inProcess(t), io.Discard)
	_ = d.httpListener.Close() // behind the server's back
	testnet.Eventually(t, "the failure", func() bool { return d.leaving.Load() })
	if err := stop(); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), `part "http"`) {
		t.Errorf("got %v, want an error of the HTTP server that is net.ErrClosed", err)
	}
}

// A signal that comes before the servers have begun to serve stops them, too.
func TestServeInterruptedAtOnce(t *testing.T) {
	testnet.NoLeaks(t)
	interrupted, interrupt := context.WithCancel(context.Background())
	interrupt()
	testnet.Within(t, "serving", func() {
		if err := serve(interrupted, inProcess(t), io.Discard, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("got %v, want no error", err)
		}
	})
}

// A process's addresses and its summary come in one write each, so that the output of its successor
// doesn't come in between.
func TestServeWritesAtOnce(t *testing.T) {
	interrupted, interrupt := context.WithCancel(context.Background())
	var writes []string
	record := writerFunc(func(p []byte) (int, error) {
		writes = append(writes, string(p))
		interrupt()
		return len(p), nil
	})
	testnet.Within(t, "serving", func() {
		if err := serve(interrupted, inProcess(t), record, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("got %v, want no error", err)
		}
	})
	const pipeBuf = 4096 // Linux's PIPE_BUF
	if len(writes) != 2 || len(writes[0]) > pipeBuf || !strings.Contains(writes[1], "uptime") {
		t.Errorf("got %d writes %q, want one of the addresses and one of the summary", len(writes), writes)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// When the last of the things to open fails, the others are closed again.
func TestServeOpensAllOrNothing(t *testing.T) {
	testnet.NoLeaks(t)
	busy := testnet.Listen(t, net.Listen, testnet.TCP4).Addr().String()
	opts := inProcess(t)
	opts.grpcAddress = busy
	if err := serve(t.Context(), opts, io.Discard, slog.New(slog.DiscardHandler)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want EADDRINUSE", err)
	}
}

func TestServeVerboseLogsRequests(t *testing.T) {
	quiet, verbose := startServers(t), startServers(t, "-v")
	for _, s := range []*servers{quiet, verbose} {
		s.fetch("GET", "/echo", nil, nil)
		s.openCallAndEnd()
		s.stop()
	}
	for _, want := range []string{"path=/echo", "method=" + echopb.Echo_BidiStream_FullMethodName + " code=OK"} {
		if got := verbose.stderr.String(); !strings.Contains(got, want) {
			t.Errorf("with -v: got log\n%s\nwant %q in it", got, want)
		}
		if got := quiet.stderr.String(); strings.Contains(got, want) {
			t.Errorf("without -v: got log\n%s\nwant no %q in it", got, want)
		}
	}
}

// openCallAndEnd makes a bidirectional call from its begin to its end.
func (s *servers) openCallAndEnd() {
	s.t.Helper()
	call := s.openCall()
	if err := call.CloseSend(); err != nil {
		s.t.Fatalf("BidiStream: CloseSend: %v", err)
	}
	if _, err := call.Recv(); err != io.EOF {
		s.t.Fatalf("BidiStream: got %v, want EOF", err)
	}
}

func TestParseServeFlagsHelp(t *testing.T) {
	if _, err := parseServeFlags([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: got %v, want flag.ErrHelp", err)
	}
}
