//go:build !percore_net

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/percore/percore/internal/testnet"
)

// rolling is three servers behind HAProxy, with the configuration that examples/haproxy has.
type rolling struct {
	t       *testing.T
	args    []string // of each server
	servers [3]*command
	http    [3]string // the servers' addresses
	grpc    [3]string

	frontHTTP, frontTLS, frontGRPC string // HAProxy's
	stats                          string // HAProxy's socket
}

// TestRollingReplacement replaces three servers behind HAProxy, one by one, while clients make requests:
// none fails. Each server in turn says that it isn't ready, serves until HAProxy has noticed, and
// ends. WebSockets are told to connect again, at most once for each server that is replaced, and every
// message is answered or meets that close message. A larger run by hand:
//
//	PERCORE_TEST_REQUESTS=100000 go test -run TestRollingReplacement -v ./cmd/percore
func TestRollingReplacement(t *testing.T) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("haproxy is not in PATH: install it to run this test")
	}
	requests := int64(sizeOf(t, "PERCORE_TEST_REQUESTS", 2000, 2000))
	const proxied = "send-proxy-v2 check-send-proxy"
	// The servers' gRPC is in clear, and its checks go to the port of HTTP.
	const securely, checkSecurely = "ssl verify none", "check-ssl verify none"
	for _, mode := range []struct {
		name, http, grpc string // added to HAProxy's lines of servers
		args             []string
	}{
		{name: "http1", args: nil},
		{name: "http2", http: "proto h2 check-proto h1 ws h1", args: nil},
		{name: "proxy", http: proxied, grpc: proxied, args: []string{"-proxy-protocol", "127.0.0.0/8"}},
		{name: "tls", http: securely, grpc: checkSecurely, args: []string{"-tls"}},
		{name: "tls-http2", http: securely + " alpn h2 check-alpn http/1.1 ws h1", grpc: checkSecurely, args: []string{"-tls"}},
		{name: "net"},
		{name: "net-tls", http: securely, grpc: checkSecurely, args: []string{"-tls"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			if strings.HasPrefix(mode.name, "net") {
				t.Setenv("PERCOREDEBUG", "engine=net")
			}
			r := startRolling(t, mode.http, mode.grpc, mode.args...)
			var stop atomic.Bool
			var made atomic.Int64
			var all sync.WaitGroup
			run := func(name string, echo func(text string) error) {
				all.Go(func() {
					for n := 0; !stop.Load(); n++ {
						text := fmt.Sprint(name, ", request ", n)
						if err := echo(text); err != nil {
							t.Errorf("%s: %v", text, err)
							return
						}
						made.Add(1)
						time.Sleep(rand.N(2 * time.Millisecond))
					}
				})
			}
			for name, echo := range r.clients() {
				for i := range 5 {
					run(fmt.Sprint(name, " client ", i), echo)
				}
			}
			var talkers [10]*talker
			for i := range talkers {
				talkers[i] = newTalker(r, i)
				run(fmt.Sprint("WebSocket ", i), talkers[i].say)
			}
			for i := range r.servers {
				goal := requests * int64(i+1) / int64(len(r.servers)+1)
				testnet.Eventually(t, "requests", func() bool { return made.Load() >= goal || t.Failed() })
				r.replace(i)
				for j, c := range talkers {
					if n := c.again.Load(); n > int64(i+1) {
						t.Errorf("WebSocket %d connected again %d times for %d replaced servers", j, n, i+1)
					}
				}
			}
			testnet.Eventually(t, "requests", func() bool { return made.Load() >= requests || t.Failed() })
			stop.Store(true)
			all.Wait()
			var sum int64
			for _, c := range talkers {
				sum += c.again.Load()
			}
			if sum == 0 {
				t.Errorf("no WebSocket connected again: none was on a server that was replaced")
			}
			t.Logf("%d requests, %d WebSockets connected again %d times", made.Load(), len(talkers), sum)
		})
	}
}

// talker is the client of a WebSocket, which connects again when it is told to.
type talker struct {
	dialer websocket.Dialer
	url    string
	ws     *websocket.Conn
	again  atomic.Int64 // times that it connected again
}

func newTalker(r *rolling, i int) *talker {
	r.t.Helper()
	c := &talker{url: "ws://" + r.frontHTTP + "/websocket"}
	c.dialer.HandshakeTimeout = testnet.HangTimeout
	if i%2 == 1 {
		c.url = "wss://" + r.frontTLS + "/websocket"
		c.dialer.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	if err := c.connect(); err != nil {
		r.t.Fatalf("%s: %v", c.url, err)
	}
	r.t.Cleanup(func() { c.ws.Close() })
	return c
}

func (c *talker) connect() (err error) {
	c.ws, _, err = c.dialer.Dial(c.url, nil)
	return err
}

// say sends a message until it comes back. Only a close message that asks for another connection may
// come in its place.
func (c *talker) say(text string) error {
	for {
		_ = c.ws.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		_ = c.ws.WriteMessage(websocket.TextMessage, []byte(text)) // if it fails the reason is to be read
		_, answer, err := c.ws.ReadMessage()
		if err == nil && string(answer) != text {
			err = fmt.Errorf("got %q", answer)
		}
		if !websocket.IsCloseError(err, websocket.CloseServiceRestart, websocket.CloseGoingAway) {
			return err
		}
		c.ws.Close()
		c.again.Add(1)
		if err := c.connect(); err != nil {
			return fmt.Errorf("connecting again: %w", err)
		}
	}
}

func startRolling(t *testing.T, httpLine, grpcLine string, args ...string) *rolling {
	r := &rolling{t: t, frontHTTP: testnet.Reserve(t), frontTLS: testnet.Reserve(t), frontGRPC: testnet.Reserve(t)}
	// The delay is the checks' interval, times the two failures that HAProxy wants to see, and much more,
	// for a machine that is busy.
	r.args = append([]string{"-drain-delay", "3s"}, args...)
	for i := range r.servers {
		r.http[i], r.grpc[i] = testnet.Reserve(t), testnet.Reserve(t)
		r.start(i)
	}
	site, _ := testnet.TLS(t)
	dir := testnet.ShortTempDir(t)
	r.stats = filepath.Join(dir, "stats")
	config, err := os.ReadFile("../../examples/haproxy/haproxy.cfg")
	if err != nil {
		t.Fatal(err)
	}
	pairs := []string{
		"/run/haproxy/admin.sock", r.stats, "/etc/haproxy/site.pem", testnet.WritePEM(t, site.Certificates[0]),
		"timeout connect 2s", "timeout connect 10s\n    timeout check 10s", // otherwise the interval between checks
		"10.0.0.10:80\n", r.frontHTTP + "\n", "10.0.0.10:443", r.frontTLS, "10.0.0.10:9090", r.frontGRPC,
	}
	for i := range r.servers {
		_, port, _ := net.SplitHostPort(r.http[i])
		pairs = append(pairs,
			fmt.Sprintf("10.0.0.%d:8080\n", i+1), r.http[i]+" "+httpLine+"\n",
			fmt.Sprintf("10.0.0.%d:9090 proto h2 check-proto h1 port 8080", i+1),
			r.grpc[i]+" "+grpcLine+" proto h2 check-proto h1 port "+port)
	}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(string(config))), 0o600); err != nil {
		t.Fatal(err)
	}
	haproxy := exec.Command("haproxy", "-db", "-f", file)
	output := new(testnet.Log)
	haproxy.Stdout, haproxy.Stderr = output, output
	if err := haproxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = haproxy.Process.Kill()
		_ = haproxy.Wait()
		if t.Failed() {
			t.Logf("haproxy:\n%s", output)
		}
	})
	r.awaitUp()
	return r
}

// start starts a server.
func (r *rolling) start(i int) {
	r.servers[i] = startCommand(r.t, serveArguments(r.t.TempDir(), append(r.args, "-http", r.http[i], "-grpc", r.grpc[i])...)...)
	r.servers[i].await("Ctrl-C stops")
}

// replace ends a server and starts another one in its place.
func (r *rolling) replace(i int) {
	old := r.servers[i]
	old.signal(syscall.SIGTERM)
	old.waitOrderly()
	if old.stderr.Has("cut off") {
		r.t.Errorf("server %d: %s", i, &old.stderr)
	}
	r.start(i)
	r.awaitUp()
}

// awaitUp waits until HAProxy says that all servers are there for each protocol.
func (r *rolling) awaitUp() {
	r.t.Helper()
	testnet.Eventually(r.t, "servers that HAProxy knows to be up", func() bool {
		c, err := net.Dial("unix", r.stats)
		if err != nil {
			return false // it starts
		}
		defer c.Close()
		_, _ = io.WriteString(c, "show stat\n")
		rows, _ := io.ReadAll(c)
		up := 0
		for row := range strings.Lines(string(rows)) {
			if strings.Contains(row, ",UP,") && strings.Contains(row, ",L7OK,") { // the check's result
				up++
			}
		}
		return up == 2*len(r.servers)
	})
}

// clients returns functions that send a text and fail unless it comes back, each over connections
// of its own.
func (r *rolling) clients() map[string]func(text string) error {
	post := func(client *http.Client, url string, proto int) func(string) error {
		client.Timeout = testnet.HangTimeout
		return func(text string) error {
			resp, err := client.Post(url+"/echo", "text/plain", strings.NewReader(text))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil && (resp.StatusCode != http.StatusOK || string(body) != text || resp.ProtoMajor != proto) {
				err = fmt.Errorf("got %s over %s, %.100q", resp.Status, resp.Proto, body)
			}
			return err
		}
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 10}
	r.t.Cleanup(transport.CloseIdleConnections)
	conn, err := grpc.NewClient(r.frontGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	call := func(text string) error {
		reply, err := pb.NewBenchmarkServiceClient(conn).UnaryCall(r.t.Context(), request(text))
		if err == nil && string(reply.Payload.Body) != text {
			err = fmt.Errorf("got %.100q", reply.Payload.Body)
		}
		return err
	}
	anyCertificate := &tls.Config{InsecureSkipVerify: true}
	return map[string]func(string) error{
		"http1": post(&http.Client{Transport: transport}, "http://"+r.frontHTTP, 1),
		"h2c":   post(testnet.HTTP2Client(r.t, nil), "http://"+r.frontHTTP, 2),
		"https": post(testnet.HTTP2Client(r.t, anyCertificate), "https://"+r.frontTLS, 2),
		"grpc":  call,
	}
}
