//go:build !percore_net

package http2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

var (
	proxyCases = flag.Int("proxydiffer", 60, "how many scripts TestProxySameAsNetHTTP plays")
	proxySeed  = flag.Uint64("proxyseed", 1, "what TestProxySameAsNetHTTP draws them from; 0: chance")
)

// TestProxySameAsNetHTTP plays scripts of a client and a server with a ReverseProxy between them. The
// proxy has net/http's server and client, or ours in the place of one or of both. It compares what
// client and server see. The scripts are the same each time. To try others, use -proxydiffer=10000
// -proxyseed=0.
//
//  1. A script is a few exchanges, one after the other. Behind each there is a plain one, to see that
//     the connections are as they should be.
//  2. The server fails, or the client leaves, only when the other has seen all that was sent before.
//  3. Each exchange has bytes of its own. Whatever happens, no client gets those of another, nor a
//     part of an answer as if it were all of it.
func TestProxySameAsNetHTTP(t *testing.T) {
	testnet.NoLeaks(t)
	seed := testnet.Drawn(t, *proxySeed)
	cases := *proxyCases
	if race.Enabled {
		cases /= 4
	}
	const players = 4
	var all sync.WaitGroup
	for player := range players {
		all.Go(func() {
			for i := player; i < cases && !t.Failed(); i += players {
				playProxies(t, newProxyScript(rand.New(rand.NewPCG(seed, uint64(i)))))
			}
		})
	}
	all.Wait()
}

// playProxies plays a script to each kind of proxy. Few outcomes depend on chance, on how fast
// net/http's goroutines are: what differs is played again.
func playProxies(t *testing.T, s *proxyScript) {
	for _, own := range []proxyOwn{{server: true}, {client: true}, {server: true, client: true}} {
		const tries = 10
		got, want := "", ""
		for try := 0; try < tries && (try == 0 || got != want) && !t.Failed(); try++ {
			want, got = s.play(t, proxyOwn{}), s.play(t, own)
		}
		if got != want {
			t.Errorf("%+v: %v\ngot\n%s\nwant, as with net/http,\n%s", own, s, got, want)
		}
	}
}

// proxyOwn says which parts of the proxy are ours.
type proxyOwn struct{ server, client bool }

// A proxyScript is what one client and one server do.
type proxyScript struct {
	front, back string // "http", "https", "h2", "h2c"
	flush       time.Duration
	rewrite     bool // or Director
	modify      string
	pool        bool // BufferPool
	limited     bool // by a MaxBytesHandler
	noKeep      bool // DisableKeepAlives
	exchanges   []*proxied
}

// proxied is a request, and what the server does with it.
type proxied struct {
	id       int
	method   string
	header   []string
	body     int // -1: none
	chunked  bool
	trailer  bool
	early    int // answers with status 103
	status   int
	answer   []string // fields of its header
	length   int      // Content-Length; -1: not declared
	down     [2]int   // the body, in two parts
	trails   bool
	at       string // where the exchange ends: "begin", "early", "header", "body"; "": at its end
	how      string // how it does then: "abort", "die", by the server, or "cancel", by the client
	switches string // protocols: who ends the stream
}

func (s *proxyScript) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s to %s, flush %v, rewrite %t, modify %q, pool %t, limited %t, noKeep %t",
		s.front, s.back, s.flush, s.rewrite, s.modify, s.pool, s.limited, s.noKeep)
	for _, x := range s.exchanges {
		fmt.Fprintf(&b, "\n  %s", testnet.Shortened(fmt.Sprintf("%+v", *x)))
	}
	return b.String()
}

func newProxyScript(r *rand.Rand) *proxyScript {
	one := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	s := &proxyScript{
		front:   one("http", "http", "https", "h2", "h2c"),
		back:    one("http", "http", "https", "h2", "h2c"),
		flush:   -time.Duration(r.IntN(2)),
		rewrite: r.IntN(2) == 0,
		modify:  one("", "", "", "", "header", "error", "panic"),
		pool:    r.IntN(2) == 0,
		limited: r.IntN(5) == 0,
		noKeep:  r.IntN(12) == 0,
	}
	for range 1 + r.IntN(3) {
		x := &proxied{id: len(s.exchanges), body: -1, length: -1, early: r.IntN(3) * r.IntN(2)}
		x.method = one("GET", "GET", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS")
		for range r.IntN(4) {
			x.header = append(x.header, one("Te:trailers", "Proxy-Authorization:b", "X-Forwarded-For:1.2.3.4", "User-Agent:u", "X-Long:"+strings.Repeat("l", 5000),
				"X-Long:"+strings.Repeat("l", 50_000), "Cookie:a=b", "Cookie:c=d", "X-Empty:", "Range:bytes=0-", "Content-Type:a/b"))
		}
		if x.method == "POST" || x.method == "PUT" {
			x.body = []int{-1, 0, 1, 3000, 20_000, 400_000}[r.IntN(6)]
			x.chunked = x.body >= 0 && r.IntN(3) == 0
			x.trailer = x.chunked && r.IntN(2) == 0
		}
		x.status = []int{200, 200, 200, 404, 500, 204, 304, 302}[r.IntN(8)]
		x.down = [2]int{1 + r.IntN(3)*2000, []int{1, 100, 3000, 100_000}[r.IntN(4)]}
		for range r.IntN(4) {
			x.answer = append(x.answer, one("Connection:X-Hop", "X-Hop:a", "Keep-Alive:timeout=5", "Proxy-Authenticate:b", "Set-Cookie:a=b", "Set-Cookie:c=d", "X-Empty:",
				"X-Long:"+strings.Repeat("l", 50_000), "Content-Type:text/event-stream", "Connection:close", "Upgrade:h2c", "Date:x", "Trailer:X-Never", "Te:x"))
		}
		x.trails = r.IntN(4) == 0
		if x.isBodyless() {
			x.down = [2]int{}
		} else if r.IntN(2) == 0 {
			x.length = x.down[0] + x.down[1]
		}
		if r.IntN(2) == 0 {
			x.at, x.how = one("begin", "early", "header", "body"), one("abort", "die", "cancel")
		}
		if s.front[1] != '2' && s.back[1] != '2' && s.modify != "panic" && s.modify != "error" && r.IntN(6) == 0 {
			*x = proxied{id: x.id, method: "GET", header: []string{"Connection:Upgrade", "Upgrade:x"}, body: -1, switches: one("client", "server")}
		}
		x.settle(s)
		plain := &proxied{id: x.id + 1, method: "GET", body: -1, status: 200, length: -1, down: [2]int{1, 2}}
		s.exchanges = append(s.exchanges, x, plain)
	}
	return s
}

// settle takes out of an exchange what would be left to chance.
func (x *proxied) settle(s *proxyScript) {
	seen := s.modify != "error" && s.modify != "panic" && (s.flush != 0 || x.length < 0) // the client sees parts of the answer
	switch {
	case x.switches != "" || x.at == "":
	case x.at == "early" && x.early == 0, x.isBodyless() && x.at != "early":
		x.at = "begin"
	case !seen && x.at != "early":
		x.at = "begin"
	}
	if x.exceeds(s) {
		x.at, x.how = "", ""
	}
}

// exceeds reports whether the request's body is beyond the proxy's limit. How much of the request the
// server gets then is left to chance, if it gets any.
func (x *proxied) exceeds(s *proxyScript) bool { return s.limited && x.body > proxyLimit }

const proxyLimit = 50_000

// isBodyless reports whether the answer never has a body.
func (x *proxied) isBodyless() bool { return x.method == "HEAD" || x.status == 204 || x.status == 304 }

// A proxyStage is where a script is played.
type proxyStage struct {
	*testing.T
	s      *proxyScript
	client *http.Transport
	url    string // the proxy's
	seen   []*proxySeen
}

// proxySeen is what was seen of an exchange.
type proxySeen struct {
	came  chan bool // closed when the server has the request
	next  chan bool // closed when the client has seen what was sent before the end
	ended chan bool // closed when the server is done

	mu             sync.Mutex
	client, server []string
}

func (s *proxySeen) note(side *[]string, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := proxyChance.ReplaceAllString(fmt.Sprintf(format, args...), "…")
	*side = append(*side, "\n    "+text)
}

// proxyChance are parts of what is seen that depend on chance: addresses, streams, and what was wrong
// with a connection that has ended.
var proxyChance = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+|stream ID \d+|X-Error:\[[^\]]*\]`)

// play plays a script, and returns what was seen.
func (s *proxyScript) play(t *testing.T, own proxyOwn) string {
	st := &proxyStage{T: t, s: s}
	for range s.exchanges {
		st.seen = append(st.seen, &proxySeen{came: make(chan bool), next: make(chan bool), ended: make(chan bool)})
	}
	_, client := testnet.TLS(t)
	backend := &http.Server{
		Handler:     http.HandlerFunc(st.serve),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, proxyConn{}, c) },
	}
	_, target, closeBackend := startServer(t, backend, s.back, false)
	base := &http.Transport{Protocols: protocolsOf(s.back), TLSClientConfig: client.Clone(), DisableKeepAlives: s.noKeep}
	var rt interface {
		http.RoundTripper
		CloseIdleConnections()
	} = base
	if own.client {
		rt = httpadapter.NewTransport(base)
	}
	st.client = &http.Transport{Protocols: protocolsOf(s.front), TLSClientConfig: client.Clone(), DisableCompression: true}
	front := &http.Server{Handler: s.proxy(rt, target)}
	_, u, closeFront := startServer(t, front, s.front, own.server)
	st.url = u.String()
	var all strings.Builder
	for i, x := range s.exchanges {
		st.call(x, st.seen[i])
		if t.Failed() {
			break
		}
		fmt.Fprintf(&all, "%s\n  client%s\n  server%s\n", x.method, strings.Join(st.seen[i].client, ""), strings.Join(st.seen[i].server, ""))
	}
	st.client.CloseIdleConnections()
	closeFront()
	rt.CloseIdleConnections()
	closeBackend()
	return all.String()
}

// proxy returns the proxy to a server.
func (s *proxyScript) proxy(rt http.RoundTripper, target *url.URL) http.Handler {
	p := httputil.NewSingleHostReverseProxy(target)
	if s.rewrite {
		p = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() }}
	}
	if s.pool {
		p.BufferPool = new(soakBuffers)
	}
	p.Transport, p.ErrorLog, p.FlushInterval = rt, log.New(io.Discard, "", 0), s.flush
	p.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, err error) {
		rw.Header().Set("X-Error", err.Error())
		rw.WriteHeader(http.StatusBadGateway)
	}
	switch s.modify {
	case "header":
		p.ModifyResponse = func(resp *http.Response) error { resp.Header.Set("X-Modified", "1"); return nil }
	case "error":
		p.ModifyResponse = func(*http.Response) error { return errors.New("modified") }
	case "panic":
		p.ModifyResponse = func(resp *http.Response) error { resp.Body.Close(); panic(http.ErrAbortHandler) }
	}
	if s.limited {
		return http.MaxBytesHandler(p, proxyLimit)
	}
	return p
}

type proxyConn struct{} // of the connection, in the contexts of the server's requests

// startServer starts a server, on percore if own is set.
func startServer(t testing.TB, srv *http.Server, protocol string, own bool) (ln net.Listener, u *url.URL, stop func()) {
	srv.ErrorLog, srv.Protocols = log.New(io.Discard, "", 0), protocolsOf(protocol)
	srv.TLSConfig, _ = testnet.TLS(t)
	var web testnet.WebServer = srv
	var err error
	if own {
		web = httpadapter.Wrap(srv)
		ln, err = percore.Listen("tcp4", "127.0.0.1:0")
	} else {
		ln, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		panic(err)
	}
	serve, scheme := func() error { return web.Serve(ln) }, "http"
	if protocol == "https" || protocol == "h2" {
		serve, scheme = func() error { return web.ServeTLS(ln, "", "") }, "https"
	}
	served := make(chan error, 1)
	go func() { served <- serve() }()
	return ln, &url.URL{Scheme: scheme, Host: ln.Addr().String()}, func() {
		web.Close()
		<-served
	}
}

func protocolsOf(name string) *http.Protocols {
	return protocols(strings.HasPrefix(name, "h2"), name == "h2" || name == "https")
}

// serve is the server's handler.
func (st *proxyStage) serve(rw http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(r.URL.Path[1:])
	x, seen := st.s.exchanges[id], st.seen[id]
	defer close(seen.ended)
	note := func(format string, args ...any) { seen.note(&seen.server, format, args...) }
	if x.exceeds(st.s) {
		if n, err := io.Copy(io.Discard, r.Body); err == nil {
			st.Errorf("%v: exchange %d: %d bytes look whole, want them cut at the limit", st.s, x.id, n)
		}
		return
	}
	note("%s %s %s length %d %v %s", r.Proto, r.RequestURI, r.Host, r.ContentLength, r.TransferEncoding, headerText(r.Header))
	rc := http.NewResponseController(rw)
	if x.switches != "" {
		st.serveSwitched(x, seen, rc)
		return
	}
	b, err := io.ReadAll(r.Body)
	note("body %d %t %v", len(b), err == nil, r.Trailer)
	ends := func(at string) {
		if x.at != at {
			return
		}
		if at != "begin" {
			<-seen.next
		}
		switch x.how {
		case "die":
			nc := r.Context().Value(proxyConn{}).(net.Conn)
			if tc, ok := nc.(*tls.Conn); ok {
				nc = tc.NetConn()
			}
			nc.Close()
		case "cancel":
			if at == "begin" {
				close(seen.came)
			}
			<-r.Context().Done()
			note("cancelled")
		}
		panic(http.ErrAbortHandler)
	}
	ends("begin")
	h := rw.Header()
	for i := range x.early {
		h.Set("Link", strconv.Itoa(i))
		rw.WriteHeader(http.StatusEarlyHints)
	}
	ends("early")
	h.Set("Content-Type", "c/d") // or it depends on chance whether the proxy guesses one
	for _, line := range x.answer {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, value)
	}
	if x.length >= 0 {
		h.Set("Content-Length", strconv.Itoa(x.length))
	}
	if x.trails {
		h.Add("Trailer", "X-Trailer")
	}
	rw.WriteHeader(x.status)
	if !x.isBodyless() {
		_ = rc.Flush()
		ends("header")
		rw.Write(x.part(0))
		_ = rc.Flush()
		ends("body")
		rw.Write(x.part(1))
	}
	if x.trails {
		h.Set("X-Trailer", "t")
		h.Set(http.TrailerPrefix+"X-Late", "t")
	}
}

// part returns the bytes of a part of the answer.
func (x *proxied) part(i int) []byte { return bytes.Repeat([]byte{byte('a' + 2*x.id + i)}, x.down[i]) }

// headerText returns a header without what depends on chance, and the length of long values.
func headerText(h http.Header) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(h)) {
		if key != "Date" {
			fmt.Fprintf(&b, "%s:%s ", key, testnet.Shortened(fmt.Sprint(h[key])))
		}
	}
	return b.String()
}

// serveSwitched is the server's side of an exchange that switches protocols.
func (st *proxyStage) serveSwitched(x *proxied, seen *proxySeen, rc *http.ResponseController) {
	c, brw, err := rc.Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nfirst")
	var p [4]byte
	_, err = io.ReadFull(brw, p[:])
	seen.note(&seen.server, "switched, got %q %v", p, err)
	if x.switches == "client" {
		rest, _ := io.ReadAll(brw)
		seen.note(&seen.server, "then %q", rest)
	}
}

// call makes a request, and notes what the client sees.
func (st *proxyStage) call(x *proxied, seen *proxySeen) {
	note := func(format string, args ...any) { seen.note(&seen.client, format, args...) }
	early := make(chan bool, 10)
	ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			note("%d %s", code, headerText(http.Header(h)))
			early <- true
			return nil
		},
	}), testnet.HangTimeout)
	defer cancel()
	req := x.request(ctx, st.url)
	type result struct {
		resp *http.Response
		err  error
	}
	results := make(chan result, 1)
	go func() {
		resp, err := st.client.RoundTrip(req)
		results <- result{resp, err}
	}()
	end := func() { // where the exchange ends before its time
		if x.how == "cancel" {
			cancel()
		}
		close(seen.next)
	}
	switch {
	case x.at == "begin" && x.how == "cancel":
		testnet.Receive(st, "the request", seen.came)
		cancel()
	case x.at == "early":
		for range x.early {
			testnet.Receive(st, "an early answer", early)
		}
		end()
	}
	r := testnet.Receive(st, "the answer", results)
	if r.err != nil {
		if x.how != "cancel" {
			note("no answer: %v", r.err)
		}
	} else {
		st.read(x, seen, r.resp, end)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		st.Errorf("%v: exchange %d has not ended", st.s, x.id)
	}
	if !x.exceeds(st.s) {
		testnet.Receive(st, "the end of the server's handler", seen.ended)
	}
}

// request returns the request of an exchange.
func (x *proxied) request(ctx context.Context, to string) *http.Request {
	var body io.Reader
	if x.body >= 0 {
		body = bytes.NewReader(bytes.Repeat([]byte("u"), x.body))
	}
	req, err := http.NewRequestWithContext(ctx, x.method, fmt.Sprintf("%s/%d?a=b", to, x.id), body)
	if err != nil {
		panic(err)
	}
	if x.chunked {
		req.ContentLength, req.GetBody = -1, nil
		req.Body = io.NopCloser(io.MultiReader(body))
	}
	if x.trailer {
		req.Trailer = http.Header{"X-Up": {"t"}}
	}
	for _, line := range x.header {
		name, value, _ := strings.Cut(line, ":")
		if name != "Te" || req.Header["Te"] == nil { // which is refused twice
			req.Header.Add(name, value)
		}
	}
	return req
}

// read reads an answer, and notes what it is.
func (st *proxyStage) read(x *proxied, seen *proxySeen, resp *http.Response, end func()) {
	defer resp.Body.Close()
	note := func(format string, args ...any) { seen.note(&seen.client, format, args...) }
	note("%d length %d %s", resp.StatusCode, resp.ContentLength, headerText(resp.Header))
	if resp.StatusCode == http.StatusSwitchingProtocols {
		c := resp.Body.(io.ReadWriteCloser)
		var p [5]byte
		_, err := io.ReadFull(c, p[:])
		note("switched, got %q %v", p, err)
		io.WriteString(c, "more")
		if x.switches == "server" {
			rest, _ := io.ReadAll(c)
			note("then %q", rest)
		}
		return
	}
	var got []byte
	if x.at == "header" || x.at == "body" {
		if x.at == "body" {
			got = make([]byte, x.down[0])
			n, _ := io.ReadFull(resp.Body, got)
			got = got[:n]
		}
		end()
	}
	rest, err := io.ReadAll(resp.Body)
	got = append(got, rest...)
	if resp.StatusCode == x.status && !x.isBodyless() {
		want := slices.Concat(x.part(0), x.part(1))
		if !bytes.HasPrefix(want, got) || err == nil && (len(got) < len(want) || x.at != "") {
			st.Errorf("%v: exchange %d: got %d bytes of %d, and %v", st.s, x.id, len(got), len(want), err)
		}
	}
	note("body %d, whole %t, trailer %s", len(got), err == nil, headerText(resp.Trailer))
}
