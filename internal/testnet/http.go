package testnet

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// WebServer has the methods that an http.Server and an httpadapter.Server share, for tests that run
// either.
type WebServer interface {
	Serve(l net.Listener) error
	ServeTLS(l net.Listener, certFile, keyFile string) error
	Shutdown(ctx context.Context) error
	Close() error
}

// ServeWeb serves l until the test ends, with the server's TLS configuration if overTLS is set. Then it
// closes the server, unless the test has done so.
func ServeWeb(t testing.TB, server WebServer, l net.Listener, overTLS bool) {
	serve := func() error { return server.Serve(l) }
	if overTLS {
		serve = func() error { return server.ServeTLS(l, "", "") }
	}
	served := make(chan error, 1)
	go func() { served <- serve() }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := Receive(t, "Serve ending", served); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: got %v, want http.ErrServerClosed", err)
		}
	})
}

// KeepAlive returns a function that makes a GET request on c and returns the body of the response. It
// ends the test unless a response arrives with status 200. It must be called from the test's goroutine.
//
// An http.Transport would not do: it closes a connection instead of reusing it if the goroutine
// that wrote a request hasn't reported that within 50 ms of the response.
func KeepAlive(t testing.TB, c net.Conn) (get func(path string) (body string)) {
	in := bufio.NewReader(c)
	return func(path string) string {
		t.Helper()
		c.SetDeadline(time.Now().Add(HangTimeout))
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("GET %s: %v", path, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: got %s, %v, want 200 and all of the response", path, resp.Status, err)
		}
		return string(body)
	}
}

// HTTP2Client returns a client that speaks only HTTP/2: over TLS with config, or in clear text if that
// is nil. Its connections are closed when the test ends.
func HTTP2Client(t testing.TB, config *tls.Config) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: config.Clone()} // which it changes
	if config == nil {
		tr.Protocols.SetUnencryptedHTTP2(true)
	} else {
		tr.Protocols.SetHTTP2(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// URL returns the address of a server that listens on l.
func URL(l net.Listener, overTLS bool, path string) string {
	scheme := "http"
	if overTLS {
		scheme = "https"
	}
	return scheme + "://" + l.Addr().String() + path
}
