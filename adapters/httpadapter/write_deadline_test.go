package httpadapter

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

// A write deadline is gone once a request was answered, however it was set.
func TestWriteDeadlineGone(t *testing.T) {
	type connKey struct{}
	for name, set := range map[string]func(rw http.ResponseWriter, c net.Conn) error{
		"of the ResponseWriter": func(rw http.ResponseWriter, _ net.Conn) error {
			return http.NewResponseController(rw).SetWriteDeadline(monotime.LongAgo)
		},
		"of the connection": func(_ http.ResponseWriter, c net.Conn) error { return c.SetWriteDeadline(monotime.LongAgo) },
		"by SetDeadline":    func(_ http.ResponseWriter, c net.Conn) error { return c.SetDeadline(monotime.LongAgo) },
		"of the connection below": func(_ http.ResponseWriter, c net.Conn) error {
			return c.(interface{ NetConn() net.Conn }).NetConn().SetWriteDeadline(monotime.LongAgo)
		},
	} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, overTLS), func(t *testing.T) {
				done := make(chan bool, 1) // the deadline is set
				f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
					defer func() { done <- true }()
					rw.Header().Set("Content-Length", "2")
					io.WriteString(rw, "ok")
					if err := http.NewResponseController(rw).Flush(); err != nil {
						t.Errorf("Flush: %v", err)
					}
					if err := set(rw, r.Context().Value(connKey{}).(net.Conn)); err != nil {
						t.Errorf("got %v", err)
					}
				}, func(f *fixture) {
					f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
						return context.WithValue(ctx, connKey{}, c)
					}
					if overTLS {
						f.srv.TLSConfig, _ = testnet.TLS(t)
					}
				})
				if overTLS {
					_, f.client = testnet.TLS(t)
				}
				c := f.dial()
				for range 3 {
					if got := c.get("/"); got != "ok" {
						t.Errorf("got %q", got)
					}
					testnet.Receive(t, "the handler", done)
				}
				f.wantCounted(3)
			})
		}
	}
}

// A Write that fails ends the connection at once, not when the handler returns. The client sees the
// end, the context is canceled, and a Read of the body fails.
func TestFailedWriteEnds(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		for _, size := range []int{3000, 100_000} { // sent by the second Flush, and at once
			t.Run(fmt.Sprintf("TLS %t, %d bytes", overTLS, size), func(t *testing.T) {
				ended, result := make(chan bool), make(chan string, 1)
				f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
					control := http.NewResponseController(rw)
					_ = control.EnableFullDuplex()
					_ = control.SetWriteDeadline(monotime.LongAgo)
					failed := false
					for range 3 {
						_, err := rw.Write(bytes.Repeat([]byte("b"), size))
						failed = failed || err != nil || control.Flush() != nil
					}
					_, err := io.ReadAll(r.Body)
					<-r.Context().Done()
					//lint:ignore SA1019 frameworks use it
					<-rw.(http.CloseNotifier).CloseNotify()
					result <- fmt.Sprint(failed, err != nil)
					testnet.Receive(t, "the client", ended)
				}, func(f *fixture) {
					if overTLS {
						f.srv.TLSConfig, _ = testnet.TLS(t)
					}
				})
				if overTLS {
					_, f.client = testnet.TLS(t)
				}
				c := f.dial()
				c.send(post("/", 10) + "part")
				if got := testnet.Receive(t, "the handler", result); got != "true true" {
					t.Errorf("got %s, want that a write and the read of the body fail", got)
				}
				_, err := io.Copy(io.Discard, c) // fails if a byte of the body was not read
				if ne, ok := err.(net.Error); ok && ne.Timeout() {
					t.Error("the connection stays open while the handler runs")
				}
				ended <- true
				f.awaitStates("new active closed")
			})
		}
	}
}

// The client of a write over TLS that was cut off sees an end that is not expected, and no record that
// is wrong.
func TestCutOffRecord(t *testing.T) {
	write := func(rw http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		for err := error(nil); err == nil; {
			_, err = rw.Write(make([]byte, 64<<10))
		}
	}
	returned := make(chan bool, 1)
	var client *tls.Config
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		defer func() { returned <- true }()
		write(rw, r)
	}, func(f *fixture) { f.srv.TLSConfig, client = testnet.TLS(t) })
	c := f.dialTLS(client)
	c.send(request("/"))
	testnet.Receive(t, "the handler", returned)
	f.awaitStates("new active closed")
	resp, err := http.ReadResponse(c.br, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want an end that is not expected", err)
	}
}
