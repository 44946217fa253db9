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

	"golang.org/x/sync/errgroup"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// caller is the handler of AppCaller.
type caller struct {
	err       error // that the client can't be made
	call      func() error
	each      int                      // calls for a request
	hold      func(n int) (int, error) // see Process.Hold
	closeIdle func()                   // closes the client's connections
}

// newCaller makes the client that the engine has.
func newCaller(order *scenario.Order) *caller {
	c := &caller{each: order.Calls.Each}
	if c.each == 0 {
		c.each = scenario.CallsPerRequest
	}
	switch calls := order.Calls; {
	case calls.GRPC > 0:
		c.callGRPC(order)
	case order.Engine.Kind == scenario.Bare:
		conns := &bareConns{percore: order.Engine.Percore, addr: order.Behind}
		c.call, c.closeIdle = conns.call, conns.closeIdle
	case order.Engine.Kind == scenario.FastHTTP:
		c.call, c.closeIdle = fastCall(order)
	default:
		c.callHTTP(order)
	}
	return c
}

func (c *caller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for range c.each {
		if err := c.call(); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	hello(w, r)
}

// inTurn returns a function that calls one of calls after the other.
func inTurn(calls []func() error) func() error {
	if len(calls) == 1 {
		return calls[0]
	}
	var n atomic.Uint32
	return func() error { return calls[int(n.Add(1)%uint32(len(calls)))]() }
}

// idleMax is how many connections to its backend a client keeps. It is as many as any scenario has
// calls at a time. With the default of two per host, the benchmark would measure how fast connections
// are opened.
const idleMax = 512

// transport returns httpadapter's client, or net/http's.
func transport(order *scenario.Order, adapted bool) http.RoundTripper {
	calls := &order.Calls
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = max(idleMax, calls.Idle)
	t.MaxIdleConns = t.MaxIdleConnsPerHost
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(calls.HTTP2 == 0)
	t.Protocols.SetHTTP2(calls.HTTP2 > 0 && calls.TLS)
	t.Protocols.SetUnencryptedHTTP2(calls.HTTP2 > 0 && !calls.TLS)
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	if dial := dialer(order); dial != nil {
		t.DialContext = func(context.Context, string, string) (net.Conn, error) { return dial() }
	}
	if adapted {
		return httpadapter.NewTransport(t)
	}
	return t
}

// dialer returns the program's own function that dials the backend, or nil.
func dialer(order *scenario.Order) func() (net.Conn, error) {
	if order.Calls.Dial == "" {
		return nil
	}
	network := "tcp"
	if order.Calls.Dial == scenario.CallUnix {
		network = "unix"
	}
	return func() (net.Conn, error) { return net.Dial(network, order.Behind) }
}

// callHTTP sets what calls with httpadapter's or net/http's client. Over HTTP/2 there are several.
func (c *caller) callHTTP(order *scenario.Order) {
	var calls []func() error
	var clients []*http.Client
	for range max(1, order.Calls.HTTP2) {
		client := &http.Client{Transport: transport(order, order.Engine.Kind == scenario.FastPath)}
		clients = append(clients, client)
		host := order.Behind
		for range max(1, order.Calls.Hosts) {
			calls = append(calls, httpCall(client.Transport, callURL(order, host), &order.Calls))
			if order.Calls.Hosts > 1 {
				host = nextHost(host)
			}
		}
	}
	c.call = inTurn(calls)
	c.hold = func(n int) (int, error) { return holdHTTP(clients[0].Transport, callURL(order, order.Behind), n) }
	c.closeIdle = func() {
		for _, client := range clients {
			client.CloseIdleConnections()
		}
	}
}

// nextHost returns the same port at the next IP address.
func nextHost(addr string) string {
	a := netip.MustParseAddrPort(addr)
	return netip.AddrPortFrom(a.Addr().Next(), a.Port()).String()
}

func callURL(order *scenario.Order, host string) string {
	scheme := "http://"
	if order.Calls.TLS {
		scheme = "https://"
	}
	if order.Calls.Dial == scenario.CallUnix {
		host = "unix"
	}
	return scheme + host + order.Calls.Path
}

// httpCall makes a GET, or a POST if there is a body.
func httpCall(client http.RoundTripper, url string, calls *scenario.Calls) func() error {
	body := make([]byte, calls.Bytes)
	return func() error {
		method, in := http.MethodGet, io.Reader(nil)
		if len(body) > 0 {
			method, in = http.MethodPost, bytes.NewReader(body)
		}
		req, err := http.NewRequest(method, url, in)
		if err != nil {
			return err
		}
		if calls.Chunked {
			req.ContentLength = -1
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

// holdHTTP is Process.Hold for HTTP. It reads no answer before the last call has been answered, so that
// afterwards n connections are idle.
func holdHTTP(client http.RoundTripper, url string, n int) (int, error) {
	var reused atomic.Int64
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if i.Reused {
				reused.Add(1)
			}
		},
	})
	answers := make([]*http.Response, n)
	var all errgroup.Group
	all.SetLimit(8) // enough for all processors
	for i := range n {
		all.Go(func() (err error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err == nil {
				answers[i], err = client.RoundTrip(req)
			}
			return err
		})
	}
	errs := []error{all.Wait()}
	for _, resp := range answers {
		if resp != nil {
			errs = append(errs, readAnswer(resp))
		}
	}
	return int(reused.Load()), errors.Join(errs...)
}

// spares are what no call uses: connections or streams. The one that was left last is taken first.
type spares[T any] struct {
	mu  sync.Mutex
	all []T // guarded by mu
}

// take returns a spare, or what open returns if there is none.
func (s *spares[T]) take(open func() (T, error)) (T, error) {
	s.mu.Lock()
	if n := len(s.all) - 1; n >= 0 {
		defer s.mu.Unlock()
		spare := s.all[n]
		s.all = s.all[:n]
		return spare, nil
	}
	s.mu.Unlock()
	return open()
}

func (s *spares[T]) leave(spare T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, spare)
}

// bareConns calls without HTTP: it writes the bytes of a GET, and reads until as many bytes have come
// as the first answer had. No client can cost less.
type bareConns struct {
	percore bool
	addr    string
	spares[*bareConn]
}

type bareConn struct {
	conn net.Conn
	buf  [4 << 10]byte
	size int // of an answer, once there was one
}

func (b *bareConns) call() error {
	c, err := b.take(b.open)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.conn, "GET / HTTP/1.1\r\nHost: %s\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n", b.addr); err != nil {
		return err
	}
	if c.size, err = io.ReadAtLeast(c.conn, c.buf[:], max(c.size, 1)); err != nil {
		return err
	}
	b.leave(c)
	return nil
}

func (b *bareConns) open() (*bareConn, error) {
	dial := new(net.Dialer).DialContext
	if b.percore {
		dial = new(percore.Dialer).DialContext
	}
	conn, err := dial(context.Background(), "tcp", b.addr)
	return &bareConn{conn: conn}, err
}

func (b *bareConns) closeIdle() {
	for _, c := range b.all {
		c.conn.Close()
	}
}
