package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, which never stops
	testnet.Main(m)
}

// TestSpinIsLinear: twice the iterations must be twice the work, or calibrating
// would mean nothing. It compares CPU time, which depends on the clock's speed and on the
// core's other thread, at a factor of 8: no growth would be 20 ms, a quadratic one 1.28 s.
func TestSpinIsLinear(t *testing.T) {
	n, err := CalibrateSpin(20 * time.Millisecond)
	if err != nil {
		t.Skip("no clock per thread here: ", err)
	}
	before, _ := usage()
	runtime.KeepAlive(Spin(8 * n))
	after, _ := usage()
	if got := after.CPU() - before.CPU(); got < 40*time.Millisecond || got > time.Second {
		t.Errorf("eight times what takes 20ms took %v of CPU time, want about 160ms", got)
	}
	if Spin(1) == Spin(2) {
		t.Error("Spin doesn't depend on its iterations")
	}
}

func TestUsageCounts(t *testing.T) {
	before, err := usage()
	if err != nil {
		t.Skip(err)
	}
	var keep [][]byte
	for range 100 {
		keep = append(keep, make([]byte, 10_000))
	}
	after, err := usage()
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Mallocs - before.Mallocs; got < uint64(len(keep)) {
		t.Errorf("%d objects allocated, want at least %d", got, len(keep))
	}
	if got := after.AllocBytes - before.AllocBytes; got < 1_000_000 {
		t.Errorf("%d bytes allocated, want at least 1000000", got)
	}
}

// TestMemoryCounts holds on to 32 MiB and looks for them.
func TestMemoryCounts(t *testing.T) {
	before, err := memory()
	if err != nil {
		t.Skip(err)
	}
	const size = 32 << 20
	block := bytes.Repeat([]byte{1}, size)
	after, err := memory()
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Heap - before.Heap; got < size*9/10 || got > 2*size {
		t.Errorf("heap grew by %d, want %d", got, size)
	}
	// The process's other threads change it at the same time, and the kernel counts it by processor and
	// sums up now and then. No upper bound: the race detector remembers four times as much.
	const residentMin = size / 2
	if got := after.Resident - before.Resident; got < residentMin {
		t.Errorf("resident memory grew by %d, want %d", got, size)
	}
	if block[0] != 1 {
		t.Fatal("the block has gone")
	}
	block = nil
	testnet.Eventually(t, "resident memory shrinking", func() bool {
		gone, err := memory()
		if err != nil {
			t.Fatal(err)
		}
		return after.Resident-gone.Resident >= residentMin
	})
}

func TestListenRefusals(t *testing.T) {
	for _, e := range []Engine{{Name: "gnet"}, {}, {Name: EngineNet, Pin: true}, {Name: EnginePercore, Loops: -1}} {
		l, err := listen(e)
		if err == nil {
			l.Close()
			t.Errorf("listen(%+v) succeeded, want an error", e)
		}
	}
}

// TestRequests sends a process requests it must refuse.
func TestRequests(t *testing.T) {
	for _, c := range []struct{ op, body, want string }{
		{"dance", "null", "unknown request"},
		{OpStart, `{"app":"ftp","engine":{"name":"net"}}`, "unknown server"},
		{OpStart, `{"app":"http","engine":{"name":"gnet"}}`, "unknown engine"},
		{OpStart, `[]`, "cannot unmarshal"},
		{OpProfileStop, "null", "no profile"},
		{OpAwait, "[]", "cannot unmarshal"},
		{OpAwait, `{"handlers":1}`, "no handlers that wait"},
		{OpRelease, "null", "no handlers that wait"},
		{OpProfileStart, `{"path":"` + filepath.Join(t.TempDir(), "no", "such") + `"}`, "no such file"},
	} {
		p := &process{}
		if _, err := p.handle(c.op, json.RawMessage(c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: error %v, want one with %q", c.op, c.body, err, c.want)
		}
	}
}

func TestProfile(t *testing.T) {
	p := &process{}
	path := filepath.Join(t.TempDir(), "cpu.pprof")
	if err := p.profileStart(path); err != nil {
		t.Fatal(err)
	}
	if err := p.profileStop(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, locksPath(path)} {
		if st, err := os.Stat(path); err != nil || st.Size() == 0 {
			t.Errorf("the profile: %v, %v; want a file with something in it", st, err)
		}
	}
}

// TestHTTPAdapter has the HTTP server of each engine answer twice on a connection,
// plain and over TLS, with the adapter and without.
func TestHTTPAdapter(t *testing.T) {
	for _, e := range []Engine{
		{Name: EngineNet}, {Name: EnginePercore}, {Name: EngineNet, Adapter: true, FastPath: true},
		{Name: EnginePercore, Adapter: true, FastPath: true},
	} {
		for _, overTLS := range []bool{false, true} {
			name := fmt.Sprintf("%s,fastpath=%t,tls=%t", e.Name, e.FastPath, overTLS)
			t.Run(name, func(t *testing.T) { answersTwice(t, Spec{App: AppHTTP, Engine: e, TLS: overTLS}) })
		}
	}
}

func answersTwice(t *testing.T, spec Spec) {
	testnet.NoLeaks(t)
	srv, err := newServer(spec)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(spec.Engine)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() {
		l.Close()
		testnet.Receive(t, "the server ending", done)
	}()
	c := testnet.Dial(t, l)
	if spec.TLS {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	defer c.Close()
	get := testnet.KeepAlive(t, c)
	wantHello := func() {
		t.Helper()
		if body := get("/"); body != string(helloBody) {
			t.Errorf("the answer: got %q, want %q", body, helloBody)
		}
	}
	wantHello()
	adapts := spec.Engine.Name == EnginePercore && spec.Engine.FastPath && runtime.GOOS == "linux"
	wantHello()
	if got := srv.(httpServer).adapted() > 0; got != adapts {
		t.Errorf("requests served by the adapter: got %t, want %t", got, adapts)
	}
}

// TestFastHTTP: fasthttp's server answers as net/http's, in another order, on each engine,
// again and again on a connection.
func TestFastHTTP(t *testing.T) {
	for _, name := range []string{EngineNet, EnginePercore} {
		for _, timeouts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,timeouts=%t", name, timeouts), func(t *testing.T) {
				testnet.NoLeaks(t)
				spec := Spec{App: AppHTTP, Timeouts: timeouts, Engine: Engine{Name: name}}
				want := sortedAnswers(t, spec)
				spec.Engine.FastHTTP = true
				if got := sortedAnswers(t, spec); !slices.Equal(got, want) {
					t.Errorf("got the lines %q, want %q", got, want)
				}
			})
		}
	}
}

// sortedAnswers returns the lines, in order, of two answers to a spec's server on one
// connection, without the time.
func sortedAnswers(t *testing.T, spec Spec) []string {
	t.Helper()
	srv, err := newServer(spec)
	if err != nil {
		t.Fatal(err)
	}
	if fast, ok := srv.(*fasthttp.Server); ok {
		fast.MaxIdleWorkerDuration = time.Millisecond // its end goes unnoticed for as long
	}
	l, err := listen(spec.Engine)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() {
		l.Close()
		testnet.Receive(t, "the server ending", done)
	}()
	c := testnet.Dial(t, l)
	defer c.Close()
	var lines []string
	for _, connection := range []string{"keep-alive", "close"} {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: %s\r\n\r\n", connection)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(all), "\r\n") {
		if strings.HasPrefix(line, "Date: ") {
			line = "Date"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// TestNoSuchServer: an engine's package of HTTP may not have every server.
func TestNoSuchServer(t *testing.T) {
	fast := Engine{Name: EngineNet, FastHTTP: true}
	for _, spec := range []Spec{
		{App: AppEcho, Engine: fast}, {App: AppUpload, Engine: fast}, {App: AppHTTP, TLS: true, Engine: fast},
		{App: AppEcho, Engine: Engine{Name: EnginePercore, Adapter: true, FastPath: true}},
		{App: AppHTTP, Engine: Engine{Name: EnginePercore, NewServer: true}},
		{App: AppHTTP, Engine: Engine{Name: EnginePercore, Adapter: true}},
	} {
		if _, err := newServer(spec); err == nil || !strings.Contains(err.Error(), "there is no server") {
			t.Errorf("%+v: error %v, want one that there is no such server", spec, err)
		}
	}
}

// TestCaller: each client makes its calls, of each kind that it has, and fails if the backend does.
func TestCaller(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	short := serve(t, Spec{App: AppHTTP, Engine: Engine{Name: EngineNet}})
	files := serve(t, Spec{App: AppFiles, Dir: dir, Engine: Engine{Name: EngineNet}})
	uploads := serve(t, Spec{App: AppUpload, Engine: Engine{Name: EngineNet}})
	mirrors := serve(t, Spec{App: AppMirror, Engine: Engine{Name: EngineNet}})
	calls := serve(t, Spec{App: AppGRPC, Engine: Engine{Name: EngineNet}})
	http2 := serve(t, Spec{App: AppUpload, HTTP2: true, Engine: Engine{Name: EngineNet}})
	for name, engine := range map[string]Engine{
		"net":      {Name: EngineNet},
		"percore":  {Name: EnginePercore, Adapter: true, FastPath: true},
		"fasthttp": {Name: EngineNet, FastHTTP: true},
		"net bare": {Name: EngineNet, Bare: true},
		"bare":     {Name: EnginePercore, Bare: true},
	} {
		for kind, spec := range map[string]Spec{
			"short":    {Backend: short},
			"download": {Backend: files, CallPath: "/file"},
			"missing":  {Backend: files, CallPath: "/missing"},
			"upload":   {Backend: uploads, CallBytes: 100 << 10},
			"mirror":   {Backend: mirrors, CallBytes: 100 << 10},
			"unary":    {Backend: calls, CallBytes: 100 << 10, CallConns: 2},
			"list":     {Backend: calls, CallBytes: 128, CallConns: 2, CallKind: CallList},
			"pingpong": {Backend: calls, CallBytes: 128, CallConns: 2, CallKind: CallPingPong},
			"h2c":      {Backend: http2, CallHTTP2: 2, CallBytes: 100 << 10},
			"unknown":  {Backend: calls, CallConns: 1, CallKind: "x"},
			"refused":  {Backend: short, CallConns: 1},
		} {
			if spec.App, spec.Engine = AppCaller, engine; !spec.Exists() {
				continue
			}
			call, closeIdle := newCall(spec)
			defer closeIdle()
			for range 3 {
				if err := call(); (err == nil) == (kind == "missing" || kind == "unknown" || kind == "refused") {
					t.Errorf("%s, %s: got error %v", name, kind, err)
				}
			}
		}
	}
}

// TestCallerHosts: calls go to one address after the other.
func TestCallerHosts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is one loopback address")
	}
	asked := make(chan string, 4)
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Host })}
	defer s.Close()
	var hosts []string
	for addr := "127.0.0.1:0"; len(hosts) < 2; addr = nextHost(hosts[0]) {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, l.Addr().String())
		go s.Serve(l)
	}
	call, closeIdle := newCall(Spec{App: AppCaller, Backend: hosts[0], CallHosts: 2})
	defer closeIdle()
	for i := range cap(asked) {
		if err := call(); err != nil {
			t.Fatal(err)
		}
		if got, want := <-asked, hosts[(i+1)%2]; got != want {
			t.Errorf("call %d: got %s, want %s", i, got, want)
		}
	}
}

// TestCallerHolds: as many connections are idle as there were calls, and then used once more, unless
// they were closed.
func TestCallerHolds(t *testing.T) {
	for _, tls := range []bool{false, true} {
		backend := serve(t, Spec{App: AppHTTP, TLS: tls, Engine: Engine{Name: EngineNet}})
		for name, fast := range map[string]bool{"net": false, "percore": true} {
			const n = 20
			c := newCaller(Spec{App: AppCaller, Engine: Engine{FastPath: fast}, Backend: backend, CallTLS: tls, CallIdle: n})
			closeIdle := c.idle.(httpHolder).client.(interface{ CloseIdleConnections() }).CloseIdleConnections
			defer closeIdle()
			for i, want := range []int{0, n, 0} {
				if i == 2 {
					closeIdle()
				}
				if got, err := c.idle.hold(n); got != want || err != nil {
					t.Errorf("%s, TLS %t, time %d: %d calls had an idle connection, error %v; want %d", name, tls, i, got, err, want)
				}
			}
		}
	}
	c := newCaller(Spec{App: AppCaller, Backend: "127.0.0.1:1", CallIdle: 2})
	if _, err := c.idle.hold(2); err == nil {
		t.Error("no error without a backend")
	}
}

// TestCallerHoldsGRPC is that for clients of gRPC, each with one connection.
func TestCallerHoldsGRPC(t *testing.T) {
	backend := serve(t, Spec{App: AppGRPC, Engine: Engine{Name: EngineNet}})
	for _, fast := range []bool{false, true} {
		const n = 20
		h := &grpcHolder{spec: Spec{Engine: Engine{FastPath: fast}, Backend: backend}}
		for i, want := range []int{0, n, -1} {
			if i == 2 {
				for _, c := range h.clients {
					c.Close()
				}
			}
			if got, err := h.hold(n); want >= 0 && (got != want || err != nil) || want < 0 && err == nil {
				t.Errorf("fast %t, time %d: %d calls had an idle connection, error %v; want %d", fast, i, got, err, want)
			}
		}
	}
}

// serve runs the server of a spec on package net until the test ends and returns its address.
func serve(t *testing.T, spec Spec) string {
	t.Helper()
	spec.Engine.Name = EngineNet
	_, addr := serveEngine(t, spec)
	return addr
}

// serveEngine runs the server of a spec until the test ends.
func serveEngine(t *testing.T, spec Spec) (srv server, addr string) {
	t.Helper()
	srv, err := newServer(spec)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(spec.Engine)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		srv.Serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return srv, l.Addr().String()
}

// TestProxyTCPHalfClose sends through the proxy, ends its side and must get the
// whole echo and the end of the stream.
func TestProxyTCPHalfClose(t *testing.T) {
	addr := serve(t, Spec{App: AppProxyTCP, Backend: serve(t, Spec{App: AppEcho})})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	msg := strings.Repeat("there and back ", 10_000)
	go func() {
		io.WriteString(c, msg)
		c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != msg {
		t.Errorf("%d bytes came back, error %v; want %d", len(got), err, len(msg))
	}
}

// TestLongPoll: requests of the one path wait until they are released, or until their
// client leaves, and requests of others don't wait.
func TestLongPoll(t *testing.T) {
	testnet.NoLeaks(t)
	poll := newLongPoll(false)
	srv := httptest.NewServer(poll)
	defer srv.Close()
	client := srv.Client()
	get := func(ctx context.Context, path string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+path, nil)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	leaving, leave := context.WithCancel(t.Context())
	waited := make(chan error, 3)
	for _, ctx := range []context.Context{t.Context(), leaving, t.Context()} {
		go func() {
			body, err := get(ctx, WaitPath)
			if err == nil && body != string(helloBody) {
				err = fmt.Errorf("got %q, want %q", body, helloBody)
			}
			waited <- err
		}()
	}
	poll.await(3)
	if body, err := get(t.Context(), "/"); err != nil || body != string(helloBody) {
		t.Errorf("beside the waits: got %q, %v, want %q", body, err, helloBody)
	}
	select {
	case err := <-waited:
		t.Errorf("a request ended before the release: %v", err)
	default:
	}
	leave()
	if err := testnet.Receive(t, "the request without a client ending", waited); !errors.Is(err, context.Canceled) {
		t.Errorf("the request without a client: got %v, want %v", err, context.Canceled)
	}
	poll.release()
	for range 2 {
		if err := testnet.Receive(t, "a released request ending", waited); err != nil {
			t.Errorf("a released request: %v", err)
		}
	}
}

// TestDetach: answers that wait are detached, over HTTP/1.1 and HTTP/2 and with gRPC in both servers.
// They end when they are released, or when their client leaves; one that comes later ends at once.
func TestDetach(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the handlers would wait")
	}
	for name, spec := range map[string]Spec{
		"HTTP/1.1":  {App: AppWaiting, Engine: Engine{Adapter: true, FastPath: true}},
		"HTTP/2":    {App: AppWaiting, HTTP2: true, Engine: Engine{Adapter: true, FastPath: true}},
		"gRPC":      {App: AppGRPC, Engine: Engine{Adapter: true, FastPath: true}},
		"NewServer": {App: AppGRPC, Engine: Engine{NewServer: true}},
	} {
		t.Run(name, func(t *testing.T) { detaches(t, spec) })
	}
}

func detaches(t *testing.T, spec Spec) {
	testnet.NoLeaks(t)
	spec.Engine.Name, spec.Engine.Detach = EnginePercore, true
	srv, addr := serveEngine(t, spec)
	ask := asker(t, spec, addr)
	leaving, leave := context.WithCancel(t.Context())
	waited := make(chan error, 3)
	for _, ctx := range []context.Context{t.Context(), leaving, t.Context()} {
		go func() { waited <- ask(ctx) }()
	}
	testnet.Eventually(t, "answers that are detached", func() bool { return detached(srv) == 3 })
	leave()
	if err := testnet.Receive(t, "the request without a client ending", waited); err == nil {
		t.Error("the request without a client has an answer")
	}
	poll := srv.(interface{ longPoll() *longPoll }).longPoll()
	testnet.Eventually(t, "an answer being forgotten", func() bool {
		poll.mu.Lock()
		defer poll.mu.Unlock()
		return len(poll.detached) == 2
	})
	poll.await(3)
	poll.release()
	for range 2 {
		if err := testnet.Receive(t, "a released request ending", waited); err != nil {
			t.Errorf("a released request: %v", err)
		}
	}
	if err := ask(t.Context()); err != nil {
		t.Errorf("after the release: %v", err)
	}
	testnet.Eventually(t, "no answer being left", func() bool { return detached(srv) == 0 })
}

// detached returns how many answers of a server are detached.
func detached(srv server) int {
	switch s := srv.(type) {
	case httpServer:
		return s.webServer.(*httpadapter.Server).Stats().Detached
	case grpcServer:
		return s.server.(interface{ Stats() grpcadapter.Stats }).Stats().Detached
	}
	return 0
}

// asker returns a function that makes a request of a spec's server, one that waits, and checks the
// answer.
func asker(t *testing.T, spec Spec, addr string) func(context.Context) error {
	t.Helper()
	if spec.App == AppGRPC {
		cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cc.Close() })
		return func(ctx context.Context) error { return watch(ctx, cc) }
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!spec.HTTP2)
	protocols.SetUnencryptedHTTP2(spec.HTTP2)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return func(ctx context.Context) error { return poll(ctx, transport, "http://"+addr+WaitPath) }
}

// watch calls EchoWatch, which is to send the request twice.
func watch(ctx context.Context, cc *grpc.ClientConn) error {
	stream, err := cc.NewStream(ctx, &ServerDesc, EchoWatch)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(wrapperspb.Bytes([]byte("x"))); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for n := 0; ; n++ {
		out := new(wrapperspb.BytesValue)
		err := stream.RecvMsg(out)
		switch {
		case errors.Is(err, io.EOF) && n == 2:
			return nil
		case err != nil:
			return fmt.Errorf("message %d: %w", n, err)
		case string(out.Value) != "x" || n == 2:
			return fmt.Errorf("message %d: got %q", n, out.Value)
		}
	}
}

// poll makes a request whose answer is to be helloBody.
func poll(ctx context.Context, transport http.RoundTripper, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && string(body) != string(helloBody) {
		err = fmt.Errorf("got %q, want %q", body, helloBody)
	}
	return err
}

// TestDocument: the answer is JSON of about the length that was asked for.
func TestDocument(t *testing.T) {
	for _, size := range []int{1, 1 << 10, 32 << 10} {
		h, err := document(size)
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		h(rec, nil)
		var list []record
		if err := json.Unmarshal(rec.Body.Bytes(), &list); err != nil || len(list) == 0 {
			t.Errorf("%d bytes: got %d records, %v, want some", size, len(list), err)
		}
		if got := rec.Body.Len(); size > 1 && (got < size*9/10 || got > size*11/10) {
			t.Errorf("%d bytes: got %d, want about as many", size, got)
		}
		if got := rec.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%d bytes: got Content-Type %q, want application/json", size, got)
		}
	}
}

// TestBurst asks twice and must get all slices each time.
func TestBurst(t *testing.T) {
	c, err := net.Dial("tcp", serve(t, Spec{App: AppBuffers, Slices: 7, SliceBytes: 100}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	for range 2 {
		io.WriteString(c, "x")
		if n, err := io.ReadFull(c, make([]byte, 700)); err != nil {
			t.Fatalf("got %d bytes, error %v; want 700", n, err)
		}
	}
	c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("got %d bytes more, error %v; want the end", len(rest), err)
	}
}
