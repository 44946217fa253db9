//go:build !percore_net

package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/internal/testnet"
)

// TestCancelInHook: a call that a hook cancels fails, though its answer is there.
func TestCancelInHook(t *testing.T) {
	quiet(t)
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "hello")
	}
	srv, shared := newHTTP2Server(t, false, http.HandlerFunc(answer))
	h := newHostile(t, says("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", true))
	hooks := map[string]func(end func()) *httptrace.ClientTrace{
		"GotFirstResponseByte": func(end func()) *httptrace.ClientTrace {
			return &httptrace.ClientTrace{GotFirstResponseByte: end}
		},
		"Got1xxResponse": func(end func()) *httptrace.ClientTrace {
			return &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { end(); return nil }}
		},
	}
	for server, tr := range map[string]*Transport{h.url(): newTestTransport(t), srv.URL: New(shared)} {
		for name, hook := range hooks {
			for how, ending := range endings {
				req, end := ending(newGet(t, server))
				resp, err := tr.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), hook(end))))
				if err == nil {
					t.Errorf("%s, %s in %s: got %s", server, how, name, resp.Status)
				}
			}
		}
		tr.CloseIdleConnections()
	}
}

// TestSharedWroteRequest: the hook is called once for an upload that is abandoned, as by http.Transport,
// which has one of several errors then.
func TestSharedWroteRequest(t *testing.T) {
	srv, base := newHTTP2Server(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		<-r.Context().Done()
	}))
	for path, want := range map[string]string{"/early": "http2: aborting request body write", "/cancel": "context canceled"} {
		tr := New(base.Clone())
		wrote := make(chan error, 2)
		ctx, cancel := context.WithCancel(t.Context())
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteHeaders: func() {
				if path == "/cancel" {
					cancel()
				}
			},
			WroteRequest: func(info httptrace.WroteRequestInfo) { wrote <- info.Err },
		})
		body, end := io.Pipe() // Close ends its Read
		req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL+path, body)
		if resp, err := tr.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
		if err := testnet.Receive(t, "the hook", wrote); fmt.Sprint(err) != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
		end.Close()
		cancel()
		tr.CloseIdleConnections()
		if len(wrote) > 0 {
			t.Errorf("%s: the hook was called twice", path)
		}
	}
}

// TestSharedCloseCanceled: Close of a body whose request's Cancel is closed fails.
func TestSharedCloseCanceled(t *testing.T) {
	srv, base := newHTTP2Server(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	tr := New(base)
	defer tr.CloseIdleConnections()
	req, end := endings["Cancel"](newGet(t, srv.URL))
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if err := resp.Body.Close(); err != request.ErrCanceled {
		t.Errorf("got %v, want %v", err, request.ErrCanceled)
	}
}

// TestChunksError: an error of sending a body in chunks says write, as net/http's does.
func TestChunksError(t *testing.T) {
	h := newHostile(t, func(net.Conn, string) bool { return true })
	tr := newTestTransport(t)
	conn := make(chan net.Conn, 1)
	body, pieces := io.Pipe()
	failed := make(chan error, 1)
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn:      func(info httptrace.GotConnInfo) { conn <- info.Conn },
		WroteRequest: func(info httptrace.WroteRequestInfo) { failed <- info.Err },
	})
	req, _ := http.NewRequestWithContext(ctx, "POST", h.url(), body)
	go func() {
		_, _ = io.WriteString(pieces, "first")
		_ = (<-conn).(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.WriteString(pieces, "second")
		pieces.Close()
	}()
	if resp, err := tr.RoundTrip(req); err == nil {
		t.Fatalf("got %s", resp.Status)
	}
	err := testnet.Receive(t, "the end of the upload", failed)
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "write" || strings.Contains(err.Error(), "writev") {
		t.Errorf("got %v, want an error of write", err)
	}
}

// TestConnBelowTLS: below the *tls.Conn that a hook gets is a connection with the options of TCP.
func TestConnBelowTLS(t *testing.T) {
	server, ours, _ := secured(t, true)
	h := newHostileOver(t, server, says("HTTP/1.1 204 No Content\r\n\r\n", true))
	var below net.Conn
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { below = info.Conn.(*tls.Conn).NetConn() },
	})
	if _, err := ours.RoundTrip(newGet(t, h.url()).WithContext(ctx)); err != nil {
		t.Fatal(err)
	}
	if _, err := below.(syscall.Conn).SyscallConn(); err != nil {
		t.Error(err)
	}
	if err := below.(interface{ SetNoDelay(bool) error }).SetNoDelay(true); err != nil {
		t.Error(err)
	}
}

// protocol is a http.RoundTripper that knows Cancel and no contexts.
type protocol struct{}

func (protocol) RoundTrip(req *http.Request) (*http.Response, error) {
	//lint:ignore SA1019 programs still use it
	<-req.Cancel
	return &http.Response{Request: req, Body: http.NoBody}, nil
}

// TestProtocolGetsCancel: a protocol of RegisterProtocol gets the Cancel of a request with a deadline.
func TestProtocolGetsCancel(t *testing.T) {
	base := new(http.Transport)
	base.RegisterProtocol("other", protocol{})
	ctx, cancel := context.WithTimeout(context.Background(), 1)
	defer cancel()
	req := newGet(t, "other://host/").WithContext(ctx)
	if resp, err := New(base).RoundTrip(req); err != nil || resp.Request != req {
		t.Errorf("got %v, %v, want an answer to the request", resp, err)
	}
}
