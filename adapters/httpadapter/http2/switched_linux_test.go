//go:build !percore_net

package http2_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestSwitchedProtocols sends a long stream through a ReverseProxy, to a server that sends it back. The
// server's answer has the first bytes of the stream with it, and the client's end of the stream reaches
// the server, whose own reaches the client. Where neither end has TLS the kernel moves the bytes.
func TestSwitchedProtocols(t *testing.T) {
	for _, test := range []struct {
		name         string
		front, below bool // have TLS
		splices      bool
	}{
		{"no TLS", false, false, true},
		{"TLS to the server", false, true, false},
		{"TLS to the client", true, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			server, client := testnet.TLS(t)
			backend := serveEcho(t, server, test.below)
			rt := httpadapter.NewTransport(&http.Transport{TLSClientConfig: client.Clone()})
			t.Cleanup(rt.CloseIdleConnections)
			proxy := &httputil.ReverseProxy{
				Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(backend) },
				Transport: rt,
				ErrorLog:  log.New(io.Discard, "", 0),
			}
			protocol := "http"
			if test.front {
				protocol = "https"
			}
			front, _, stop := startServer(t, &http.Server{Handler: proxy}, protocol, true)
			t.Cleanup(stop)
			var c interface {
				net.Conn
				CloseWrite() error
			} = testnet.Dial(t, front).(*net.TCPConn)
			if test.front {
				c = tls.Client(c, client)
			}
			stream := make([]byte, 8<<20)
			for i := range stream {
				stream[i] = byte(rand.Uint32())
			}
			before := percore.ReadStats().ZeroCopy.SpliceBytes
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			br := bufio.NewReader(c)
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp, err)
			}
			sent := make(chan error, 1)
			go func() { // not before: ReverseProxy drops what comes with the request
				_, err := c.Write(stream)
				sent <- errors.Join(err, c.CloseWrite())
			}()
			got, err := io.ReadAll(br)
			if err != nil || !bytes.Equal(got, append([]byte("first"), stream...)) {
				t.Errorf("got %d bytes, %v, want the same %d", len(got), err, len("first")+len(stream))
			}
			if err := testnet.Receive(t, "the stream", sent); err != nil {
				t.Error(err)
			}
			spliced := percore.ReadStats().ZeroCopy.SpliceBytes - before
			if test.splices != (spliced > uint64(len(stream))*3/2) || !test.splices && spliced > 0 {
				t.Errorf("the kernel has moved %d of %d bytes, want most of them: %t", spliced, 2*len(stream), test.splices)
			}
		})
	}
}

// serveEcho serves one connection, with an answer that switches protocols and has the first bytes of the
// stream with it. Then it sends back what comes, until the client ends the stream.
func serveEcho(t *testing.T, config *tls.Config, overTLS bool) *url.URL {
	t.Helper()
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	scheme := "http"
	if overTLS {
		scheme, ln = "https", tls.NewListener(ln, config)
	}
	testnet.Serve(t, ln, func(c net.Conn) {
		br := bufio.NewReader(c)
		_, err := http.ReadRequest(br)
		if err == nil {
			_, err = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nfirst")
		}
		if err == nil {
			_, err = io.Copy(c, br)
		}
		if err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	return &url.URL{Scheme: scheme, Host: ln.Addr().String()}
}
