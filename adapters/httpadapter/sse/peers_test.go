package sse

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestPeersLeave: clients that leave among the events, that ask with HEAD, and that never read, in clear
// and over TLS, with HTTP/1.1 and HTTP/2, on our server and on net/http's. The hub forgets them, and a
// client that stays gets all events. (httpadapter's test of this name has peers that leave at any other
// point.)
func TestPeersLeave(t *testing.T) {
	for _, isNet := range []bool{false, true} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("net/http %t, TLS %t", isNet, overTLS), func(t *testing.T) { testPeersLeave(t, isNet, overTLS) })
		}
	}
}

func testPeersLeave(t *testing.T, isNet, overTLS bool) {
	testnet.NoLeaks(t)
	h := NewHub(Config{Limit: 1 << 20})
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	var server testnet.WebServer = httpadapter.Wrap(srv)
	listen := testnet.ListenFunc(percore.Listen)
	if isNet {
		server, listen = srv, net.Listen
	}
	ln := testnet.Listen(t, listen, testnet.TCP4)
	var config *tls.Config
	served := make(chan error, 1)
	if overTLS {
		srv.TLSConfig, config = testnet.TLS(t)
		go func() { served <- server.ServeTLS(ln, "", "") }()
	} else {
		go func() { served <- server.Serve(ln) }()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		testnet.Receive(t, "Serve", served)
	})
	join := func(client *http.Client, method string) *reader {
		t.Helper()
		req, err := http.NewRequest(method, testnet.URL(ln, overTLS, "/"), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("got the type %q of an answer to %s", got, method)
		}
		return newReader(t, resp)
	}
	hasClients := func(n int) {
		t.Helper()
		testnet.Eventually(t, fmt.Sprintf("%d clients", n), func() bool { return h.Len() == n })
	}
	tr := &http.Transport{TLSClientConfig: config}
	t.Cleanup(tr.CloseIdleConnections)
	first := &http.Client{Transport: tr}
	events := join(first, "GET")
	events.event() // retry
	hasClients(1)
	send := func(data string) {
		t.Helper()
		if err := h.Broadcast(Event{Data: data}); err != nil {
			t.Fatal(err)
		}
		if got := events.event(); got != "data: "+data {
			t.Fatalf("got %.40q, want %.40q", got, data)
		}
	}
	for _, client := range []*http.Client{first, testnet.HTTP2Client(t, config)} {
		for _, method := range []string{"GET", "POST"} {
			leaves := join(client, method)
			hasClients(2)
			send("for both")
			leaves.body.Close()
			send("for one")
			hasClients(1)
		}
		if rest, err := io.ReadAll(join(client, "HEAD").br); len(rest) > 0 || err != nil {
			t.Errorf("got %q and %v behind HEAD", rest, err)
		}
		hasClients(1)
		if isNet && overTLS {
			continue // crypto/tls takes 5 s to close a connection that takes nothing
		}
		join(client, "GET") // and doesn't read
		hasClients(2)
		for i := 0; i < 1000 && h.Len() > 1; i++ {
			send(strings.Repeat("x", 60<<10))
		}
		hasClients(1)
	}
	h.Close()
	if got := events.event(); got != "EOF" {
		t.Errorf("got %q, want the end", got)
	}
	hasClients(0)
}
