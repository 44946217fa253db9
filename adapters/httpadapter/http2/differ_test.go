package http2_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

var (
	transportCases = flag.Int("transportdiffer", 400, "how many scripts TestTransportSameAsNetHTTP plays")
	transportTLS   = flag.Bool("transporttls", false, "TestTransportSameAsNetHTTP plays all scripts over TLS")
	transportSeed  = flag.Uint64("transportseed", 1, "what TestTransportSameAsNetHTTP draws them from; 0: chance")
)

// TestTransportSameAsNetHTTP plays scripts of a hostile server and a client, to http.Transport and to
// ours. It compares what the client sees of each call, and what the server gets on each connection. The
// scripts are the same each time. To try others, use -transportdiffer=10000 -transportseed=0.
//
//  1. A script is a few calls, one after the other, and for each the answer: its bytes, where they are
//     cut, and how the connection ends.
//  2. The client goes on only when the server has seen the end of each connection that must end. So it
//     doesn't depend on chance which connection the next call takes.
//  3. Each call has a token of its own, which the answer repeats. Unsolicited bytes have another one.
func TestTransportSameAsNetHTTP(t *testing.T) {
	testnet.NoLeaks(t)
	seed := testnet.Drawn(t, *transportSeed)
	cases := *transportCases
	if race.Enabled {
		cases /= 4
	}
	const players = 8 // part of the time they wait for net/http's timers
	var all sync.WaitGroup
	for player := range players {
		r := rand.New(rand.NewPCG(seed, uint64(player)))
		all.Go(func() {
			for i := range cases / players {
				playTransports(t, newScript(r.IntN, uint32(player<<16|i)))
			}
		})
	}
	all.Wait()
}

// FuzzTransportSameAsNetHTTP plays scripts that the fuzzer chooses: see TestTransportSameAsNetHTTP.
func FuzzTransportSameAsNetHTTP(f *testing.F) {
	r := rand.NewChaCha8([32]byte{'p'})
	for range 20 {
		seed := make([]byte, 150)
		r.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		program := testnet.Program(data)
		playTransports(t, newScript(func(n int) int { return program.Next() % n }, 0))
	})
}

// A script is what one client and one server do.
type script struct {
	maxHeader int64 // MaxResponseHeaderBytes
	noGzip    bool  // DisableCompression
	noKeep    bool  // DisableKeepAlives
	overTLS   bool
	oldTLS    bool // of version 1.2
	proxied   bool // the server is a proxy; not over TLS
	calls     []*scriptCall
}

// A scriptCall is a request, and what the server does with it.
type scriptCall struct {
	token   string
	method  string
	target  string // behind the address
	host    string
	header  http.Header
	trailer http.Header
	close   bool
	body    bodyKind
	content string
	length  int64 // ContentLength of the request
	proceed bool  // the server answers 100 before it reads the body
	answer  string
	notGzip bool  // the answer is not in the encoding that it names
	cuts    []int // where the answer is cut into several writes
	until   int   // as much of the answer is sent
	end     endKind
	extra   string // sent with the answer
	idle    string // sent when the call has ended
	cancel  cancelKind
	read    int // as much of the body the client reads; -1: all
}

type bodyKind int

const (
	bodyNone    bodyKind = iota
	bodyKnown            // can be sent again
	bodyOnce             // can't
	bodyUnknown          // has no length
	bodyFailing          // ends with an error
	bodyHeld             // has no length, and no end before the call has one
)

type endKind int

const (
	endKeep   endKind = iota // wait for the next request
	endFIN                   // end the stream behind the answer
	endCut                   // the same without an alert of TLS
	endRST                   // reset the connection
	endIdle                  // end the stream when the call has ended
	endExtra                 // send bytes when the call has ended
	endNoMore                // send nothing more
)

// keeps reports whether the connection can be used again when the client has read the answer.
func (e endKind) keeps() bool { return e == endKeep || e == endIdle || e == endExtra }

type cancelKind int

const (
	cancelNever  cancelKind = iota
	cancelBefore            // before the call
	cancelAsked             // when the server has sent its part of the answer's header
	cancelInBody            // when the client has read its part of the body
)

// playTransports plays a script to both transports. Few outcomes depend on chance, on how fast
// http.Transport's goroutines are: what differs is played to it again.
func playTransports(t *testing.T, s *script) {
	const tries = 10
	got, want, mixed := "", "", false
	for try := range tries {
		if try == 0 || mixed { // it has served some of the calls then
			got, mixed = s.play(t, func(base *http.Transport) http.RoundTripper { return httpadapter.NewTransport(base) })
		}
		want, _ = s.play(t, func(base *http.Transport) http.RoundTripper { return base })
		if mixed {
			if strings.Contains(got+want, "X-Attempt") {
				return // a call is tried again on another connection only if its own came from the pool
			}
			got, want = withoutConns(got), withoutConns(want)
		}
		if got == want || t.Failed() {
			return
		}
	}
	t.Errorf("%v\ngot (mixed: %t)\n%s\nwant, as from net/http,\n%s", s, mixed, got, want)
}

// withoutConns leaves out of an outcome which calls had the same connection. That differs if some calls
// were left to http.Transport: there are two pools then.
func withoutConns(outcome string) string {
	outcome = gotPattern.ReplaceAllString(outcome, "got ") // tried again on each idle connection, maybe
	calls, received, _ := strings.Cut(outcome, receivedMark)
	requests := strings.Split(requestPattern.ReplaceAllString(connPattern.ReplaceAllString(received, ""), "\x00$0"), "\x00")
	slices.Sort(requests)
	return calls + strings.Join(requests, "\n")
}

var (
	gotPattern     = regexp.MustCompile(`got (true|false) (true|false) (get got (true|false) (true|false) )*`)
	requestPattern = regexp.MustCompile(`([A-Z]{3,}|get) [^ ]* HTTP/1.1\\r`)
	connPattern    = regexp.MustCompile(`("\n)?connection \d+: "|"\n$`)
)

func (s *script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "maximum of header %d, no gzip %t, no keep-alives %t, TLS %t, proxied %t", s.maxHeader, s.noGzip, s.noKeep, s.overTLS, s.proxied)
	for _, c := range s.calls {
		fmt.Fprintf(&b, "\n  %s %q host %q %s trailer %q close %t\n    body %d of %d, length %d\n    proceed %t, "+
			"answer %s\n    cut at %v until %d, end %d, extra %q, idle %q, cancel %d, read %d", c.method, c.target, c.host, testnet.Shortened(fmt.Sprintf("%q", c.header)),
			c.trailer, c.close, c.body, len(c.content), c.length, c.proceed, testnet.Shortened(fmt.Sprintf("%q", c.answer)), c.cuts, c.until,
			c.end, c.extra, c.idle, c.cancel, c.read)
	}
	return b.String()
}

// play plays a script and returns what was seen, and whether calls have had connections of percore and
// of others.
func (s *script) play(t *testing.T, wrap func(*http.Transport) http.RoundTripper) (seen string, mixed bool) {
	srv := newScriptServer(t, s.overTLS)
	defer srv.close()
	base := &http.Transport{
		MaxResponseHeaderBytes: s.maxHeader,
		DisableCompression:     s.noGzip,
		DisableKeepAlives:      s.noKeep,
		ExpectContinueTimeout:  time.Hour,
	}
	if s.overTLS {
		base.TLSClientConfig = srv.client
		if s.oldTLS {
			base.TLSClientConfig.MaxVersion = tls.VersionTLS12
		}
	}
	if s.proxied {
		base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: srv.ln.Addr().String(), User: url.UserPassword("me", "x")})
	}
	rt := wrap(base)
	closeIdle := rt.(interface{ CloseIdleConnections() }).CloseIdleConnections
	defer closeIdle()
	var b strings.Builder
	over := false
	defer func() {
		if !over { // something hangs
			t.Errorf("%T, %v\n%s", rt, s, b.String())
		}
	}()
	conns := make(map[string]bool) // by type
	for i, c := range s.calls {
		if t.Failed() {
			over = true
			return "", false
		}
		fmt.Fprintf(&b, "call %d: ", i)
		var events scriptEvents
		testnet.Within(t, "the call", func() { c.play(&b, &events, srv, rt) })
		srv.await(t, c)
		if events.conn != "" {
			conns[events.conn] = true
		}
	}
	closeIdle()
	srv.awaitAll(t)
	over = true
	return testnet.WithoutPorts(testnet.Shortened(b.String() + receivedMark + srv.received())), len(conns) > 1
}

// receivedMark is between what the client and the server have seen.
const receivedMark = "received:\n"

// play makes the call and notes what the client sees.
func (c *scriptCall) play(seen *strings.Builder, events *scriptEvents, srv *scriptServer, rt http.RoundTripper) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	srv.begin(c, cancel)
	req, body, err := c.request(httptrace.WithClientTrace(ctx, c.tracing(events)), srv.url)
	if err != nil {
		fmt.Fprintf(seen, "no request: %v\n", err)
		return
	}
	defer body.release()
	if c.cancel == cancelBefore {
		cancel()
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		fmt.Fprintf(seen, "%s; response %t; %s\n", c.errorText(err), resp != nil, events.String())
		return
	}
	fmt.Fprintf(seen, "%s %q %d %q length %d %q uncompressed %t close %t own request %t TLS %t writable %t\n", resp.Proto, resp.Status,
		resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Uncompressed, resp.Close, resp.Request == req, resp.TLS != nil, isWriter(resp.Body))
	if other := resp.Header.Get("X-Token"); other != "" && other != c.token {
		fmt.Fprintf(seen, "THE ANSWER OF ANOTHER CALL: %s, want %s\n", other, c.token)
	}
	var b []byte
	if c.read < 0 {
		b, err = io.ReadAll(resp.Body)
	} else {
		b = make([]byte, c.read)
		var n int
		n, err = io.ReadFull(resp.Body, b)
		b = b[:n]
	}
	fmt.Fprintf(seen, "body %q %s", b, c.errorText(err))
	if c.cancel == cancelInBody {
		cancel()
		n, err := io.ReadFull(resp.Body, make([]byte, 1))
		fmt.Fprintf(seen, " cancelled %d %s", n, c.errorText(err))
	}
	fmt.Fprintf(seen, " closed %v trailer %q; %s\n", resp.Body.Close(), resp.Trailer, events.String())
}

func isWriter(b io.ReadCloser) bool {
	_, ok := b.(io.Writer)
	return ok
}

// errorText describes an error and what it is made of.
func (c *scriptCall) errorText(err error) string {
	if err == nil {
		return "<nil>"
	}
	// The system reports a reset once, and then the end of the stream. In some places net/http reads twice.
	if c.end == endRST && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return "a reset or EOF"
	}
	text := describe(err)
	//lint:ignore SA1019 net/http still returns it
	if pe, ok := errors.AsType[*http.ProtocolError](err); ok {
		text += fmt.Sprintf(" protocol %q", pe.ErrorString)
	}
	return text
}

// scriptEvents are the hooks of a call that were called.
type scriptEvents struct {
	testnet.Log
	conn string // the type of the connection
}

// tracing returns hooks that note their calls, as far as these have an order.
func (c *scriptCall) tracing(events *scriptEvents) *httptrace.ClientTrace {
	note := func(format string, args ...any) { fmt.Fprintf(events, format+" ", args...) }
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { note("get") },
		GotConn: func(i httptrace.GotConnInfo) {
			note("got %t %t", i.Reused, i.WasIdle)
			events.conn = connType(i.Conn)
		},
	}
	if c.cancel == cancelAsked { // what else is called depends on which comes first
		return trace
	}
	trace.GotFirstResponseByte = func() { note("first") }
	trace.Got100Continue = func() { note("100") }
	trace.Got1xxResponse = func(code int, h textproto.MIMEHeader) error {
		note("%d %q", code, h)
		if h.Get("X-Refuse") != "" {
			return errors.New("refused")
		}
		return nil
	}
	// PutIdleConn is left out: net/http calls it on its reading goroutine, which may be late.
	return trace
}

// request returns the request, whose body the caller must release.
func (c *scriptCall) request(ctx context.Context, base string) (*http.Request, *scriptBody, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", base, nil)
	if err != nil {
		return nil, nil, err
	}
	if u, err := url.Parse(base + c.target); err == nil {
		req.URL = u
	} else {
		req.URL.Opaque = c.target
	}
	req.Method, req.Host, req.Close = c.method, c.host, c.close
	req.Header, req.Trailer = c.header.Clone(), c.trailer.Clone()
	body := &scriptBody{kind: c.body, rest: c.content, released: make(chan struct{})}
	switch c.body {
	case bodyNone:
	case bodyKnown:
		req.Body = body
		req.GetBody = func() (io.ReadCloser, error) { return &scriptBody{kind: c.body, rest: c.content}, nil }
		req.ContentLength = c.length
	case bodyOnce, bodyFailing:
		req.Body, req.ContentLength = body, c.length
	case bodyUnknown, bodyHeld:
		req.Body, req.ContentLength = body, -1
	}
	return req, body, nil
}

// connType returns the type of a connection, or of that below TLS.
func connType(c net.Conn) string {
	if tc, ok := c.(*tls.Conn); ok {
		c = tc.NetConn()
	}
	return fmt.Sprintf("%T", c)
}

var errBodyFailing = errors.New("the body fails")

// A scriptBody is the body of a request.
type scriptBody struct {
	kind     bodyKind
	rest     string
	released chan struct{}
}

func (b *scriptBody) Read(p []byte) (int, error) {
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if n > 0 {
		return n, nil
	}
	if b.kind == bodyHeld {
		<-b.released
	}
	if b.kind == bodyFailing {
		return 0, errBodyFailing
	}
	return 0, io.EOF
}

func (b *scriptBody) Close() error { return nil }

func (b *scriptBody) release() { close(b.released) }

// A scriptServer plays the server's part of a script.
type scriptServer struct {
	ln       net.Listener
	url      string
	server   *tls.Config // nil: in clear
	client   *tls.Config
	served   sync.WaitGroup
	accepted chan *scriptConn
	conns    []*scriptConn // that have ended, when awaitAll has returned

	mu    sync.Mutex
	calls map[string]*servedCall // by token; guarded by mu
}

// A servedCall is a call at the server.
type servedCall struct {
	*scriptCall
	stop  func()
	conns []*scriptConn // where a request was read; guarded by the server's mu
}

func newScriptServer(t *testing.T, overTLS bool) *scriptServer {
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	srv := &scriptServer{ln: ln, url: "http://" + ln.Addr().String(), calls: make(map[string]*servedCall), accepted: make(chan *scriptConn, 100)}
	if overTLS {
		srv.server, srv.client = testnet.TLS(t)
		srv.url = "https://" + ln.Addr().String()
	}
	srv.served.Go(srv.serve)
	return srv
}

// close closes the listener and all connections, and waits for their goroutines.
func (srv *scriptServer) close() {
	srv.ln.Close()
	for len(srv.accepted) > 0 { // after a failure
		c := <-srv.accepted
		c.raw.Close()
	}
	srv.served.Wait()
}

func (srv *scriptServer) serve() {
	for {
		nc, err := srv.ln.Accept()
		if err != nil {
			return
		}
		c := &scriptConn{Conn: nc, raw: nc.(*net.TCPConn), srv: srv, over: make(chan struct{})}
		if srv.server != nil {
			c.Conn = tls.Server(nc, srv.server)
		}
		srv.served.Go(c.serve)
		srv.accepted <- c
	}
}

// begin prepares for a call, which cancel cancels.
func (srv *scriptServer) begin(c *scriptCall, cancel func()) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.calls[c.token] = &servedCall{scriptCall: c, stop: cancel}
}

// read counts a request that was read. It returns its call and how many requests were read for this.
func (c *scriptConn) read(req *http.Request) (call *servedCall, attempt int) {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	call = c.srv.calls[req.Header.Get("X-Token")]
	call.conns = append(call.conns, c)
	return call, len(call.conns)
}

// await does what the server does when the call c has ended, and waits for the end of its connections if
// they must end.
func (srv *scriptServer) await(t *testing.T, c *scriptCall) {
	srv.mu.Lock()
	var conns []*scriptConn
	if call := srv.calls[c.token]; call != nil {
		conns = call.conns
	}
	srv.mu.Unlock()
	for _, conn := range conns {
		switch c.end {
		case endKeep:
			return
		case endIdle:
			conn.closeWrite()
		case endExtra:
			io.WriteString(conn, c.idle)
		}
		testnet.Receive(t, "the end of the call's connection", conn.over)
	}
}

// awaitAll waits until all connections have ended, which is after the next one is accepted.
func (srv *scriptServer) awaitAll(t *testing.T) {
	last := testnet.Dial(t, srv.ln)
	last.Close()
	for {
		c := testnet.Receive(t, "a connection", srv.accepted)
		testnet.Receive(t, "the end of a connection", c.over)
		if c.RemoteAddr().String() == last.LocalAddr().String() {
			return
		}
		srv.conns = append(srv.conns, c)
	}
}

// received describes what came on each connection.
func (srv *scriptServer) received() string {
	var b strings.Builder
	for i, c := range srv.conns {
		fmt.Fprintf(&b, "connection %d: %q\n", i, c.log.String())
	}
	return b.String()
}

// A scriptConn is the server's end of a connection.
type scriptConn struct {
	net.Conn
	raw  *net.TCPConn // below TLS
	srv  *scriptServer
	log  testnet.Log   // what the client has sent
	over chan struct{} // closed when the connection has ended
}

func (c *scriptConn) serve() {
	defer close(c.over)
	defer c.raw.Close()
	br := bufio.NewReader(io.TeeReader(c, &c.log))
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			}
			break
		}
		call, attempt := c.read(req)
		if call.proceed {
			io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		if err := call.readBody(req.Body); err != nil {
			return
		}
		end := call.end
		if attempt == 1 {
			c.answer(call.scriptCall)
		} else {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nX-Attempt: %d\r\nContent-Length: 5\r\n\r\nagain", call.token, attempt)
			if call.ends() {
				end = endFIN
			}
		}
		if call.cancel == cancelAsked {
			call.stop()
		}
		if end == endRST {
			_ = c.raw.SetLinger(0)
			return
		}
		if call.body == bodyHeld { // it depends on chance how much of the rest comes
			c.end(end, c.Conn)
			return
		}
		if !end.keeps() {
			c.end(end, br)
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
	}
	c.end(endFIN, br)
}

// end ends the stream to the client, maybe, and waits until the client has ended its own.
func (c *scriptConn) end(how endKind, rest io.Reader) {
	switch how {
	case endCut:
		_ = c.raw.CloseWrite()
	case endFIN:
		c.closeWrite()
	}
	_, _ = io.Copy(io.Discard, rest)
}

// ends reports whether the connection ends with the call.
func (c *scriptCall) ends() bool { return c.end != endKeep }

// readBody reads as much of a body as the server reads before it answers.
func (c *scriptCall) readBody(body io.Reader) error {
	if c.body == bodyHeld {
		_, err := io.ReadFull(body, make([]byte, len(c.content)))
		return err
	}
	_, err := io.Copy(io.Discard, body)
	return err
}

// answer sends the answer in pieces.
func (c *scriptConn) answer(call *scriptCall) {
	text := call.answer[:call.until]
	if call.until == len(call.answer) {
		text += call.extra
	}
	sent := 0
	for _, cut := range call.cuts {
		if sent < cut && cut < call.until {
			io.WriteString(c, text[sent:cut])
			sent = cut
			time.Sleep(time.Millisecond)
		}
	}
	io.WriteString(c, text[sent:])
}

func (c *scriptConn) closeWrite() {
	if tc, ok := c.Conn.(*tls.Conn); ok {
		_ = tc.CloseWrite()
	}
	_ = c.raw.CloseWrite()
}

// newScript draws a script, of whose tokens id is a part.
func newScript(choose func(n int) int, id uint32) *script {
	s := &script{
		maxHeader: []int64{0, 0, 0, 8192}[choose(4)],
		noGzip:    choose(2) == 0,
		noKeep:    choose(12) == 0,
		overTLS:   choose(4) == 0 || *transportTLS,
		oldTLS:    choose(3) == 0,
	}
	s.proxied = !s.overTLS && choose(5) == 0
	for i := range 1 + choose(5) {
		g := generator{choose}
		c := g.request(fmt.Sprintf("t%08x%d", id, i))
		c.answer = g.answer(c)
		g.ending(c)
		if s.maxHeader > 0 && int64(c.until) > s.maxHeader {
			c.cuts = nil // or it depends on chance whether the limit is reached when the header turns out to be wrong
		}
		s.calls = append(s.calls, c)
	}
	return s
}

// A generator draws the parts of scripts.
type generator struct{ choose func(n int) int }

// pick returns usual, most of the time.
func (g generator) pick(usual string, odd ...string) string {
	if g.choose(6) > 0 {
		return usual
	}
	return odd[g.choose(len(odd))]
}

func (g generator) oneOf(texts ...string) string { return texts[g.choose(len(texts))] }

// request draws a request.
func (g generator) request(token string) *scriptCall {
	c := &scriptCall{token: token, read: -1, header: http.Header{"X-Token": {token}}}
	c.method = g.pick(g.oneOf("GET", "GET", "POST", "PUT"), "HEAD", "HEAD", "DELETE", "OPTIONS", "PATCH", "", "get", "CONNECT", "G T", "TRACE")
	c.target = g.pick("/", "/a?b=c", "/%41?", "//x", "", "?q", "/\x7f", "/a b", "/%zz", "/ü", "/#f", "/a;b=c")
	c.host = g.pick("", "h", "h:80", "h h", "ü", "h/x")
	c.close = g.choose(12) == 0 || c.method == "CONNECT" // Go 1.26 uses the connection again
	anyWrong := false
	for range g.choose(4) {
		name, value, _ := strings.Cut(g.oneOf("X-A:b", "x-raw:c", "Connection:close", "Connection:keep-alive", "Connection:upgrade", "User-Agent:", "User-Agent:u",
			"Accept-Encoding:gzip", "Accept-Encoding:identity", "Range:bytes=0-", "Te:trailers", "Content-Length:7", "Transfer-Encoding:chunked",
			"Host:x", "Cookie:a=b", "Idempotency-Key:k", "X-Idempotency-Key:", "X-Bad:a\nb", "X Bad:a", ":a", "X-S: a ", "X-L:"+strings.Repeat("l", 5000),
			"Upgrade:y", "Expect:x", "Trailer:X-T", "X-U:ü"), ":")
		if wrong := !isFieldName(name) || strings.Contains(value, "\n"); wrong {
			if anyWrong { // which of two is complained about depends on chance
				continue
			}
			anyWrong = true
		}
		c.header[name] = append(c.header[name], value)
	}
	if c.header["X-L"] != nil { // or it depends on chance how much of the header comes before the server refuses it
		c.target = "/"
	}
	if g.choose(3) == 0 {
		c.body = bodyKind(g.choose(int(bodyHeld) + 1))
		c.content = strings.Repeat("b", []int{0, 1, 5, 3000, 5000, 70000}[g.choose(6)])
		c.length = int64(len(c.content))
		if c.body != bodyNone && g.choose(8) == 0 {
			c.length += int64(1 + g.choose(2)) // or it depends on chance whether the answer comes before the error
		}
		if c.body == bodyFailing {
			c.length = int64(len(c.content) + 1 + g.choose(3)) // or it depends on chance whether there is an answer
		}
		if c.body >= bodyUnknown && g.choose(3) == 0 {
			c.trailer = http.Header{"X-T": {"t"}}
		}
		if c.content != "" && c.body < bodyFailing && c.length == int64(len(c.content)) && g.choose(4) == 0 {
			c.header.Set("Expect", "100-continue")
			c.proceed = true // or it depends on chance whether the body is sent
		}
		if c.body != bodyNone { // or it depends on chance how much comes before the server refuses the rest
			c.target = "/"
		}
		if c.body >= bodyFailing || c.method == "CONNECT" && c.body >= bodyUnknown { // the server can't tell where a tunnel ends
			c.method, c.host = "POST", ""
		}
	}
	return c
}

func isFieldName(name string) bool { return name != "" && !strings.Contains(name, " ") }

// answer draws the bytes of an answer.
func (g generator) answer(c *scriptCall) string {
	eol := g.pick("\r\n", "\n")
	var b strings.Builder
	if g.choose(5) == 0 {
		for range 1 + g.choose(3)*g.choose(5) {
			b.WriteString(g.oneOf("HTTP/1.1 103 Early Hints"+eol+"Link: l"+eol+eol, "HTTP/1.1 100 Continue"+eol+eol, "HTTP/1.1 102 Processing"+eol+eol,
				"HTTP/1.1 103 Early Hints"+eol+"Content-Length: 3"+eol+eol, "HTTP/1.1 110 x"+eol+"Link: "+strings.Repeat("l", 3000)+eol+eol,
				"HTTP/1.1 103 x"+eol+"X-Refuse: 1"+eol+eol, "HTTP/1.0 103 x"+eol+"Connection: close"+eol+eol))
		}
	}
	b.WriteString(g.pick("HTTP/1.1 200 OK", "HTTP/1.0 200 OK", "HTTP/1.0 200 OK", "HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified", "HTTP/1.1 404 x",
		"HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1  200 OK", "HTTP/1.1 99 x", "HTTP/1.1 1000 x", "HTTP/1.1 -20 x", "HTTP/1.1 +20 x", "HTTP/2.0 200 OK", "HTTP/1.2 200 OK",
		"HTTP/0.9 200 OK", "http/1.1 200 OK", "HTTP/1.1 abc OK", "HTTP/1.1 200 \x01", "HTTP/1.1 200 ü", "HTTX/1.1 200 OK", "", "HTTP/1.1 408 Request Timeout",
		"HTTP/1.1 301 x", "HTTP/1.1 101 Switching Protocols", "HTTP/1.1 199 x", "HTTP/1.1 200\tOK", "HTTP/1.1\t200 OK", " HTTP/1.1 200 OK", "HTTP/1.1 205 x", "HTTP/1.1 999 x",
		"HTTP/01.1 200 OK", "HTTP/1.1 000 x") + eol)
	lines := []string{"X-Token: " + c.token}
	body := c.token + strings.Repeat("b", []int{0, 1, 40, 3000, 5000, 100_000}[g.choose(6)])
	if g.choose(8) == 0 {
		body = ""
	}
	if g.choose(8) == 0 {
		lines = append(lines, "Content-Encoding: gzip")
		if g.choose(4) > 0 {
			body = gzipped(body)
		} else {
			c.notGzip = true
		}
	}
	size := len(body)
	switch g.choose(7) {
	case 0:
	case 1, 2:
		lines = append(lines, "Transfer-Encoding: "+g.pick("chunked", "Chunked", "gzip, chunked", "identity", "chunked, chunked", " chunked ", "chunked"+eol+"Transfer-Encoding: chunked", "",
			"chunked"+eol+"Content-Length: 5", "\vchunked", "chunked"+eol+"Content-Length: x"))
		body = g.chunked(body)
	default:
		lines = append(lines, "Content-Length: "+g.pick(strconv.Itoa(size), fmt.Sprintf("%d%sContent-Length: %[1]d", size, eol), fmt.Sprintf("%d%sContent-Length: %d", size, eol, size+1),
			fmt.Sprintf("%d, %[1]d", size), fmt.Sprintf("+%d", size), "-1", "0x5", "99999999999999999999", fmt.Sprintf(" %d ", size), "", "0", strconv.Itoa(size+3), strconv.Itoa(max(0, size-3)),
			fmt.Sprintf("0%d", size), "1_0", "5 5", "9223372036854775807"))
	}
	for range g.choose(4) {
		lines = append(lines, g.oneOf("X-A: b", "Connection: close", "Connection: keep-alive", "Connection: Keep-Alive, close", "Connection: upgrade", "Upgrade: y", "Keep-Alive: timeout=0",
			" folded", "X B: c", ": x", "X-N\x00: a", "x-lower: v", "X-A: c", "no colon", "X-Long: "+strings.Repeat("l", 5000), "X-Long: "+strings.Repeat("l", 20000), "Trailer: X-T", "Trailer: Content-Length",
			"Set-Cookie: a=b", "X-V: \x01", "X-V: ü", "X-E:", "X-S:   a  \t", "Proxy-Connection: close", "Pragma: no-cache", "\tx: y", "Date: x"))
	}
	if g.choose(3) == 0 {
		at := g.choose(len(lines))
		lines[0], lines[at] = lines[at], lines[0]
	}
	for _, line := range lines {
		b.WriteString(line + eol)
	}
	b.WriteString(eol)
	if c.method != "HEAD" || g.choose(8) == 0 {
		b.WriteString(body)
	}
	return b.String()
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

// chunked encodes a body.
func (g generator) chunked(body string) string {
	var b strings.Builder
	for body != "" {
		n := min(len(body), 1+g.choose(40)*g.choose(200))
		size := g.pick(fmt.Sprintf("%x", n), fmt.Sprintf("%X", n), fmt.Sprintf("00%x", n), fmt.Sprintf("%x;a=b", n), fmt.Sprintf("%x ;a=\"b\"", n), fmt.Sprintf("%x;%s", n, strings.Repeat("l", 300)),
			fmt.Sprintf("%x ", n))
		if g.choose(60) == 0 {
			size = g.oneOf("zz", "", "fffffffffffffffff", "-1", "7fffffffffffffff", fmt.Sprintf("%x", n+1), "0x1", fmt.Sprintf("%x;%s", n, strings.Repeat("l", 5000)))
		}
		end := "\r\n"
		if g.choose(60) == 0 {
			end = g.oneOf("\n", "", "x\r\n", "\r\r\n")
		}
		b.WriteString(size + "\r\n" + body[:n] + end)
		body = body[n:]
		if b.Len() > 20_000 { // it's enough
			break
		}
	}
	return b.String() + g.pick("0\r\n\r\n", "0\r\nX-T: t\r\n\r\n", "0\r\nX-T: t\r\nx-other: u\r\n\r\n", "0\r\nX T: t\r\n\r\n", "000\r\n\r\n", "0;a=b\r\n\r\n", "0\n\n", "0\r\nbad\r\n\r\n", "0\r\n\n",
		"0\r\nX-L: "+strings.Repeat("l", 5000)+"\r\n\r\n")
}

// ending draws how the answer is sent, and what becomes of the call and the connection. The server ends
// the stream if the client would wait for more, or might.
func (g generator) ending(c *scriptCall) {
	c.until = len(c.answer)
	for range g.choose(4) {
		c.cuts = append(c.cuts, g.choose(c.until+1))
	}
	slices.Sort(c.cuts)
	whole := c.parse()
	if !whole.ends {
		c.end = endFIN
	} else if whole.left {
		c.end = endNoMore
	}
	ending := g.choose(11)
	if c.body == bodyHeld {
		// http.Transport fails a call only when the body can't be read any more, so this one must not.
		// If a decoder fails, it depends on chance whether the body ends before the rest is read.
		if ending, c.end = -1, endNoMore; !whole.ends || c.notGzip || strings.Contains(c.answer, "X-Refuse") || len(c.answer) > 8000 {
			c.body, c.end = bodyUnknown, endFIN
		}
	}
	switch ending {
	case 0:
		c.end, c.until = endFIN, g.upTo(c.until)
	case 1:
		c.end, c.until = endRST, g.upTo(c.until)
		if c.parse().ends { // the next call may come before the reset
			c.end = endFIN
		}
	case 2:
		c.end, c.until = endCut, g.upTo(c.until)
	case 3:
		if c.end == endKeep {
			c.end = endIdle
		}
	case 4:
		if c.end == endKeep {
			c.end, c.idle = endExtra, g.evil()
		}
	case 5:
		if whole.ends {
			c.end, c.extra = endNoMore, g.evil()
		}
	case 6:
		c.cancel, c.end = cancelBefore, endNoMore
	case 7: // in the first line, where nothing can be wrong yet
		c.cancel, c.end, c.until = cancelAsked, endNoMore, g.upTo(strings.IndexByte(c.answer, '\n'))
	case 8:
		c.until = g.upTo(c.until)
		if part := c.parse(); part.inBody {
			c.cancel, c.end, c.read = cancelInBody, endNoMore, part.body
		} else {
			c.until = len(c.answer)
		}
	case 9:
		if c.read = g.choose(20); c.end == endKeep {
			c.end = endFIN // or it depends on chance whether the rest is read before the next call
		}
	}
	if c.notGzip && c.end.keeps() {
		c.end = endFIN // or it depends on chance whether the rest is read before the next call
	}
}

// A parsed is what net/http makes of an answer.
type parsed struct {
	ends   bool // without the end of the stream
	left   bool // there are bytes behind its end
	inBody bool // it is cut in the body
	body   int  // bytes of it
}

// parse parses the part of the answer that is sent.
func (c *scriptCall) parse() (p parsed) {
	whole := false
	br := bufio.NewReader(io.MultiReader(strings.NewReader(c.answer[:c.until]), noticing{&whole}))
	req := &http.Request{Method: c.method}
	resp, err := http.ReadResponse(br, req)
	for err == nil && resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(br, req)
	}
	if err != nil {
		return parsed{}
	}
	b, err := io.ReadAll(resp.Body)
	plain := resp.Header.Get("Content-Encoding") == ""
	return parsed{
		ends:   err == nil && !whole && resp.StatusCode != http.StatusSwitchingProtocols,
		left:   br.Buffered() > 0,
		inBody: errors.Is(err, io.ErrUnexpectedEOF) && plain,
		body:   len(b),
	}
}

// noticing is an empty reader that notices when it is read.
type noticing struct{ read *bool }

func (n noticing) Read([]byte) (int, error) {
	*n.read = true
	return 0, io.EOF
}

// upTo draws a number up to n.
func (g generator) upTo(n int) int {
	if n < 250 {
		return g.choose(n + 1)
	}
	return min(n, g.choose(250)*(1+g.choose(2)*n/250))
}

// evil draws unsolicited bytes.
func (g generator) evil() string {
	return g.oneOf("HTTP/1.1 200 OK\r\nX-Token: tdeadbeef\r\nContent-Length: 0\r\n\r\n", "\r\n", "x", "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "0\r\n\r\n")
}
