package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

type caller struct {
	err    error // that the client can't be made
	call   func() error
	each   int      // calls for a request
	closes []func() // close the client's connections
}

// newCaller makes the client that the engine has.
func newCaller(order *scenario.Order) *caller {
	c := &caller{each: order.Backend.Each}
	if c.each == 0 {
		c.each = scenario.CallsPerRequest
	}
	switch {
	case order.Backend.App == scenario.AppGRPC:
		c.callGRPC(order)
	case order.Engine.Kind == scenario.FastHTTP:
		c.fastCall(order)
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

func inTurn(calls []func() error) func() error {
	if len(calls) == 1 {
		return calls[0]
	}
	var n atomic.Uint32
	return func() error { return calls[int(n.Add(1)%uint32(len(calls)))]() }
}

// idleMax is how many connections to its backend a client keeps: as many as any scenario has calls at a
// time. With the default of two the benchmark would measure how fast connections are opened.
const idleMax = 512

func transport(order *scenario.Order, adapted bool) closingTransport {
	b := order.Backend
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = idleMax, idleMax
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(!b.HTTP2)
	t.Protocols.SetHTTP2(b.HTTP2 && b.TLS)
	t.Protocols.SetUnencryptedHTTP2(b.HTTP2 && !b.TLS)
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
	switch {
	case order.Backend.Unix:
		return func() (net.Conn, error) { return net.Dial("unix", order.Behind) }
	case order.Backend.Dial:
		return func() (net.Conn, error) { return net.Dial("tcp", order.Behind) }
	}
	return nil
}

type closingTransport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// callHTTP sets what calls with httpadapter's or net/http's client. Over HTTP/2 there are several.
func (c *caller) callHTTP(order *scenario.Order) {
	var calls []func() error
	for range max(1, order.Backend.Conns) {
		client := transport(order, order.Engine.Kind == scenario.FastPath)
		c.closes = append(c.closes, client.CloseIdleConnections)
		host := order.Behind
		for range max(1, order.Backend.Hosts) {
			calls = append(calls, httpCall(client, callURL(order, host), order.Backend))
			if order.Backend.Hosts > 1 {
				host = nextHost(host)
			}
		}
	}
	c.call = inTurn(calls)
}

func nextHost(addr string) string {
	a := netip.MustParseAddrPort(addr)
	return netip.AddrPortFrom(a.Addr().Next(), a.Port()).String()
}

func callURL(order *scenario.Order, host string) string {
	scheme := "http://"
	if order.Backend.TLS {
		scheme = "https://"
	}
	if order.Backend.Unix {
		host = "unix"
	}
	return scheme + host + order.Backend.Path
}

func httpCall(client http.RoundTripper, url string, backend *scenario.Scenario) func() error {
	body := make([]byte, backend.Payload)
	return func() error {
		method, in := http.MethodGet, io.Reader(nil)
		if len(body) > 0 {
			method, in = http.MethodPost, bytes.NewReader(body)
		}
		req, err := http.NewRequest(method, url, in)
		if err != nil {
			return err
		}
		if backend.Chunked {
			req.ContentLength = -1
		}
		resp, err := client.RoundTrip(req)
		if err != nil {
			return err
		}
		return readAnswer(resp)
	}
}

func readAnswer(resp *http.Response) error {
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("the backend answered " + resp.Status)
	}
	_, err := io.Copy(io.Discard, resp.Body)
	return err
}
