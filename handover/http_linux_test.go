//go:build !percore_net

package handover

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/testnet"
)

// web is an http.Server that is served until it is handed over.
type web struct {
	make   func() *http.Server
	ln     net.Listener
	server *httpadapter.Server
	done   chan error
}

func serveWeb(ln net.Listener, srv func() *http.Server) *web {
	w := &web{srv, ln, httpadapter.Wrap(srv()), make(chan error, 1)}
	go func() { w.done <- w.server.Serve(ln) }()
	return w
}

// passOn hands over to another server, and shuts this one down.
func (w *web) passOn(t *testing.T) *web {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	giving, taking := pair(t)
	gave := goGive(ctx, giving, serverOf("web", w.ln, w.server))
	a, ln := mustTake(t, taking)
	next := serveWeb(ln, w.make)
	if err := errors.Join(a.ready(ctx, nil), testnet.Receive(t, "give", gave)); err != nil {
		t.Fatal(err)
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("connections were left: %v", err)
	}
	w.shutdown(t)
	return next
}

func (w *web) shutdown(t *testing.T) {
	t.Helper()
	if err := w.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Receive(t, "Serve", w.done); err != http.ErrServerClosed {
		t.Errorf("Serve: got %v", err)
	}
}

// TestHTTP: clients that ask without a pause, and clients that wait, keep their connections through
// several handovers of an http.Server; each request is answered once.
func TestHTTP(t *testing.T) {
	testnet.NoLeaks(t)
	var served atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		fmt.Fprintf(w, "%s %s", r.Header.Get("X-Client"), r.URL.Path)
	})
	server := serveWeb(testnet.Listen(t, percore.Listen, testnet.TCP4), func() *http.Server { return &http.Server{Handler: handler} })

	const clientCount, idle = 20, 10 // the first of them wait
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var asked atomic.Int64
	for i := range clientCount {
		c := testnet.Dial(t, server.ln)
		r := bufio.NewReader(c)
		if err := ask(c, r, i, 0); err != nil { // so that it isn't in the backlog any more
			t.Fatal(err)
		}
		asked.Add(1)
		clients.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := ask(c, r, i, n); err != nil {
					t.Errorf("client %d, request %d: %v", i, n, err)
					return
				}
				asked.Add(1)
				if i < idle {
					select {
					case <-stop:
					case <-time.After(20 * time.Millisecond):
					}
				}
			}
		})
	}

	var successors []*percore.Listener
	for range 5 {
		server = server.passOn(t)
		successors = append(successors, server.ln.(*percore.Listener))
	}
	close(stop)
	clients.Wait()
	if got, want := served.Load(), asked.Load(); got != want {
		t.Errorf("got %d requests served, want %d", got, want)
	}
	for i, l := range successors {
		// The last one may still be about to accept those whose clients have said nothing since.
		testnet.Eventually(t, fmt.Sprintf("successor %d accepting the connections", i+1), func() bool { return l.Stats().Adopted >= clientCount })
		if got := l.Stats(); got.Adopted != clientCount || got.Accepted != 0 {
			t.Errorf("successor %d: got %d connections adopted and %d accepted, want %d and none", i+1, got.Adopted, got.Accepted, clientCount)
		}
	}
	server.server.Close()
	testnet.Receive(t, "Serve", server.done)
}

// TestHTTPProxyTLVs: connections keep the TLVs of their PROXY headers in the next process, and in the
// one after it, however long they are.
func TestHTTPProxyTLVs(t *testing.T) {
	testnet.NoLeaks(t)
	config := percore.ListenConfig{ProxyProtocol: &percore.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}}
	ln, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	type connKey struct{}
	server := serveWeb(ln, func() *http.Server {
		return &http.Server{
			ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := r.Context().Value(connKey{}).(net.Conn)
				fmt.Fprintf(w, "%s %x", c.RemoteAddr(), sha256.Sum256(percore.ProxyTLVs(c)))
			}),
		}
	})

	// From none to as many bytes as a header may have: together more than a packet takes.
	const clientCount, addressBytes = 60, 12
	gets := make([]func(string) string, clientCount)
	wants := make([]string, clientCount)
	for i := range gets {
		var tlvs []byte
		if size := proxyproto.BytesMax - 16 - addressBytes - 3; i > 0 {
			value := bytes.Repeat([]byte{byte(i)}, size/(1+i%4))
			tlvs = append([]byte{0xe0, byte(len(value) >> 8), byte(len(value))}, value...)
		}
		rest := addressBytes + len(tlvs)
		header := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11"), byte(rest>>8), byte(rest), 192, 0, 2, byte(i), 192, 0, 2, 255, 0, 1, 0, 2)
		c := testnet.Dial(t, ln)
		if _, err := c.Write(append(header, tlvs...)); err != nil {
			t.Fatal(err)
		}
		gets[i] = testnet.KeepAlive(t, c)
		wants[i] = fmt.Sprintf("192.0.2.%d:1 %x", i, sha256.Sum256(tlvs))
	}
	check := func() {
		for i, get := range gets {
			if got := get("/"); got != wants[i] {
				t.Errorf("client %d: got %s, want %s", i, got, wants[i])
			}
		}
	}
	check()
	for range 2 {
		server = server.passOn(t)
		check() // on the same connections: KeepAlive doesn't dial
	}
	server.server.Close()
	testnet.Receive(t, "Serve", server.done)
}

// ask sends a request and checks the answer.
func ask(c net.Conn, r *bufio.Reader, client, n int) error {
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: x\r\nX-Client: %d\r\n\r\n", n, client); err != nil {
		return err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if got, want := string(body), strconv.Itoa(client)+" /"+strconv.Itoa(n); got != want {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	return nil
}
