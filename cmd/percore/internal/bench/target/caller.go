package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

// proxyIdleMax is how many connections to its backend a client keeps. It is as many as any scenario
// has calls at a time. With the default of two per host, the benchmark would measure how fast
// connections are opened.
const proxyIdleMax = 512

// transport returns a client of HTTP/1.1 with enough idle connections, and at least idleMax,
// httpadapter's or net/http's.
func transport(adapted bool, idleMax int) http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = max(proxyIdleMax, idleMax)
	t.MaxIdleConns = t.MaxIdleConnsPerHost
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	if adapted {
		return httpadapter.NewTransport(t)
	}
	return t
}

// caller is the handler of AppCaller.
type caller struct {
	call  func() error
	calls int // for each request

	idle holder // of Spec.CallIdle; nil: there is none
}

// A holder leaves connections of a client idle.
type holder interface {
	// hold makes n calls, each on a connection of its own. It returns how many of these had been idle.
	hold(n int) (int, error)
}

func newCaller(spec Spec) *caller {
	c := &caller{calls: CallsPerRequest}
	if spec.Calls > 0 {
		c.calls = spec.Calls
	}
	switch {
	case spec.CallIdle > 0 && spec.CallConns > 0:
		c.call, _ = grpcCall(spec)
		c.idle = &grpcHolder{spec: spec}
	case spec.CallIdle > 0:
		h := httpHolder{transport(spec.Engine.FastPath, spec.CallIdle), spec.callURL()}
		c.call = httpCall(h.client, h.url, make([]byte, spec.CallBytes))
		c.idle = h
	default:
		c.call, _ = newCall(spec)
	}
	return c
}

func (c *caller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for range c.calls {
		if err := c.call(); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	hello(w, r)
}

// dialersMax is how many of hold's calls are begun at a time: enough for all processors.
const dialersMax = 8

// httpHolder is the holder of an HTTP client.
type httpHolder struct {
	client http.RoundTripper
	url    string
}

// hold reads no answer before the last call has been answered, so that afterwards n connections are
// idle.
func (c httpHolder) hold(n int) (int, error) {
	var reused atomic.Int64
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if i.Reused {
				reused.Add(1)
			}
		},
	})
	answers, errs := make([]*http.Response, n), make([]error, n)
	dialAll(n, func(i int) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
		if err == nil {
			answers[i], err = c.client.RoundTrip(req)
		}
		errs[i] = err
	})
	for i, resp := range answers {
		if resp != nil {
			errs[i] = readAnswer(resp)
		}
	}
	return int(reused.Load()), errors.Join(errs...)
}

// dialAll calls dial n times, dialersMax at a time.
func dialAll(n int, dial func(i int)) {
	var begun atomic.Int64
	var dialers sync.WaitGroup
	for range dialersMax {
		dialers.Go(func() {
			for i := begun.Add(1) - 1; i < int64(n); i = begun.Add(1) - 1 {
				dial(int(i))
			}
		})
	}
	dialers.Wait()
}

// newCall returns a function that calls the backend once, and reads the answer, and one that closes the
// connections that are idle.
func newCall(spec Spec) (call func() error, closeIdle func()) {
	url := spec.callURL()
	switch {
	case spec.CallConns > 0:
		return grpcCall(spec)
	case spec.Engine.Bare:
		conns := &bareConns{engine: spec.Engine.Name, addr: spec.Backend}
		return conns.call, conns.closeIdle
	case spec.Engine.FastHTTP:
		return fastCall(url, make([]byte, spec.CallBytes))
	}
	if spec.CallHTTP2 > 0 {
		return http2Call(spec)
	}
	client := http.Client{Transport: transport(spec.Engine.FastPath, 0)}
	calls := []func() error{httpCall(client.Transport, url, make([]byte, spec.CallBytes))}
	for i := 1; i < spec.CallHosts; i++ {
		spec.Backend = nextHost(spec.Backend)
		calls = append(calls, httpCall(client.Transport, spec.callURL(), make([]byte, spec.CallBytes)))
	}
	return inTurn(calls), client.CloseIdleConnections
}

// inTurn returns a function that calls one of calls after the other.
func inTurn(calls []func() error) func() error {
	if len(calls) == 1 {
		return calls[0]
	}
	var n atomic.Uint32
	return func() error { return calls[int(n.Add(1)%uint32(len(calls)))]() }
}

// nextHost returns the same port at the next IP address.
func nextHost(addr string) string {
	a := netip.MustParseAddrPort(addr)
	return netip.AddrPortFrom(a.Addr().Next(), a.Port()).String()
}

// http2Call calls over HTTP/2, by several clients in turn.
func http2Call(spec Spec) (call func() error, closeIdle func()) {
	calls, closers := make([]func() error, spec.CallHTTP2), make([]func(), spec.CallHTTP2)
	for i := range calls {
		base := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		base.Protocols.SetHTTP2(spec.CallTLS)
		base.Protocols.SetUnencryptedHTTP2(!spec.CallTLS)
		client := http.Client{Transport: base}
		if spec.Engine.FastPath {
			client.Transport = httpadapter.NewTransport(base)
		}
		calls[i] = httpCall(client.Transport, spec.callURL(), make([]byte, spec.CallBytes))
		closers[i] = client.CloseIdleConnections
	}
	closeIdle = func() {
		for _, closeOne := range closers {
			closeOne()
		}
	}
	return inTurn(calls), closeIdle
}

func (s Spec) callURL() string {
	scheme := "http://"
	if s.CallTLS {
		scheme = "https://"
	}
	return scheme + s.Backend + s.CallPath
}

// httpCall makes a GET, or a POST if there is a body.
func httpCall(client http.RoundTripper, url string, body []byte) func() error {
	return func() error {
		req, err := newRequest(url, body)
		if err != nil {
			return err
		}
		resp, err := client.RoundTrip(req)
		if err != nil {
			return err
		}
		return readAnswer(resp)
	}
}

// readAnswer reads an answer to its end.
func readAnswer(resp *http.Response) error {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("the backend answered " + resp.Status)
	}
	_, err := io.Copy(io.Discard, resp.Body)
	return err
}

func newRequest(url string, body []byte) (*http.Request, error) {
	if len(body) == 0 {
		return http.NewRequest(http.MethodGet, url, nil)
	}
	return http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
}

// bareConns calls without HTTP: it writes the bytes of a GET, and reads until as many bytes have come as
// the first answer had. No client can cost less.
type bareConns struct {
	engine, addr string

	mu   sync.Mutex
	idle []*bareConn
	size int // of an answer
}

type bareConn struct {
	conn net.Conn
	buf  [4 << 10]byte
}

func (b *bareConns) call() error {
	c, size, err := b.take()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.conn, "GET / HTTP/1.1\r\nHost: %s\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n", b.addr); err != nil {
		return err
	}
	n, err := io.ReadAtLeast(c.conn, c.buf[:], max(size, 1))
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle, b.size = append(b.idle, c), n
	return nil
}

func (b *bareConns) take() (c *bareConn, size int, err error) {
	b.mu.Lock()
	if n := len(b.idle) - 1; n >= 0 {
		defer b.mu.Unlock()
		c, b.idle = b.idle[n], b.idle[:n]
		return c, b.size, nil
	}
	b.mu.Unlock()
	dial := new(net.Dialer).DialContext
	if b.engine == EnginePercore {
		dial = new(percore.Dialer).DialContext
	}
	conn, err := dial(context.Background(), "tcp", b.addr)
	return &bareConn{conn: conn}, 0, err
}

func (b *bareConns) closeIdle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.idle {
		c.conn.Close()
	}
	b.idle = nil
}
