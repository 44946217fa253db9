package httpadapter

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestHTTP1OverTLS runs tests over TLS: see overTLS.
func TestHTTP1OverTLS(t *testing.T) {
	for _, version := range []string{"1.3", "1.2"} {
		t.Run(version, func(t *testing.T) {
			for name, test := range map[string]func(t *testing.T){
				"HoldsNothing":          TestHTTP1HoldsNothing,
				"OddRequests":           TestOddRequests,
				"Context":               TestHTTP1Context,
				"Ends":                  TestHTTP1Ends,
				"KeepAlivesOffByServer": TestHTTP1KeepAlivesOffByServer,
				"Timeouts":              TestHTTP1Timeouts,
				"Kept":                  TestHTTP1Kept,
				"LateWrites":            TestHTTP1LateWrites,
				"EndOfPipeline":         TestHTTP1EndOfPipeline,
				"CloseInHijack":         TestHTTP1CloseInHijack,
				"HooksPanic":            TestHTTP1HooksPanic,
				"Soak":                  TestHTTP1Soak,
				"BodyHoldsNothing":      TestBodyHoldsNothing,
				"BodyContext":           TestBodyContext,
				"BodyReadBeyondHandler": TestBodyReadBeyondHandler,
			} {
				if (version == "1.2" || testing.Short()) && (name == "Timeouts" || name == "Kept" || name == "Soak") {
					continue // they take seconds, and records are the same in both versions once they are read
				}
				t.Run(name, test)
			}
		})
	}
}

// waitForEnd is a handler that waits for the client's end if the path says so.
func waitForEnd(arrived chan bool) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasPrefix(r.URL.Path, "/wait") {
			arrived <- true
			<-r.Context().Done()
		}
		echoPath(rw, r)
	}
}

// Messages for crypto/tls are read while a connection waits, and wake no handler.
func TestHTTP1TLSMessages(t *testing.T) {
	f := startOurs(t, echoPath, nil)
	c := f.dialRecords(f.client)
	n := 0
	get := func() {
		t.Helper()
		n++
		path := fmt.Sprint("/", n)
		c.write(c.data(request(path)))
		if got := c.answer(); got != path {
			t.Errorf("got %q, want %q", got, path)
		}
		f.awaitParked(1)
	}
	settled := func() {
		t.Helper()
		testnet.Eventually(t, "no worker having the connection", func() bool { return f.server.Stats().Serving == 0 })
	}
	get()
	for _, message := range [][]byte{testnet.KeyUpdate, testnet.KeyUpdateWithResponse} {
		c.write(c.Update(message))
		get()
		record := c.Update(message)
		for i := range record { // byte by byte
			c.write(record[i : i+1])
			if i%8 == 0 {
				settled()
			}
		}
		get()
		a, b := c.Make(testnet.RecordHandshake, message[:2]), c.Update(message[2:]) // a message in two records
		c.write(a)
		settled()
		c.write(b)
		get()
		c.write(c.Update(message), c.data(request("/a")), c.Update(message), c.data(request("/b")))
		for _, want := range []string{"/a", "/b"} {
			if got := c.answer(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		n += 2
	}
	for range 5 { // empty records, which crypto/tls allows
		c.write(c.data(""))
	}
	get()
	f.wantCounted(uint64(n))
}

// A client that sends a byte now and then holds no worker and, over TLS, no goroutine.
func TestHTTP1TLSSlowBytes(t *testing.T) {
	f := startOurs(t, echoPath, nil)
	c := f.dialRecords(f.client)
	text := request("/slow")
	for i := range text { // a record for each byte of the request
		record := c.data(text[i : i+1])
		for at := range record {
			c.write(record[at : at+1])
			if (i+at)%64 == 0 {
				testnet.Eventually(t, "no worker having the connection", func() bool {
					return f.server.Stats().Serving == 0 && goroutines(f) == 0
				})
			}
		}
	}
	if got := c.answer(); got != "/slow" {
		t.Errorf("got %q", got)
	}
	f.wantCounted(1)
}

// TestHTTP1TLSEnds: a handler learns that its client has ended, however it ends.
func TestHTTP1TLSEnds(t *testing.T) {
	arrived := make(chan bool, 1)
	f := startOurs(t, waitForEnd(arrived), nil)
	notify := func(c *recordClient) []byte { return c.Make(testnet.RecordAlert, testnet.CloseNotify) }
	finish := func(c *recordClient) {
		c.write() // what is held
		_ = c.tcp.CloseWrite()
	}
	for _, tt := range []struct {
		name  string
		fatal bool // answers are lost
		end   func(c *recordClient)
	}{
		{"close_notify", false, func(c *recordClient) { c.write(notify(c)) }},
		{"close_notify, byte by byte", false, func(c *recordClient) { c.pieces(notify(c), 1) }},
		{"end of the stream", false, finish},
		{"both", false, func(c *recordClient) { c.write(notify(c)); finish(c) }},
		{"KeyUpdate, close_notify", false, func(c *recordClient) { c.write(c.Update(testnet.KeyUpdate), notify(c)) }},
		{"KeyUpdate, the end later", false, func(c *recordClient) {
			c.write(c.Update(testnet.KeyUpdateWithResponse))
			time.Sleep(time.Millisecond)
			finish(c)
		}},
		{"a part of a record, the end", false, func(c *recordClient) { c.write(c.data("GET")[:9]); finish(c) }},
		{"reset", true, func(c *recordClient) { _ = c.tcp.SetLinger(0); c.tcp.Close() }},
		{"no record", true, func(c *recordClient) { c.write([]byte("no record")) }},
		{"a record with another key", true, func(c *recordClient) { c.Skip(); c.write(c.data("x")) }},
		{"too many messages", true, func(c *recordClient) {
			for range 40 {
				c.write(c.data(""))
			}
		}},
	} {
		for _, when := range []string{"after", "with the request", "with the second request"} {
			if tt.fatal && when != "after" {
				continue
			}
			t.Run(tt.name+" "+when, func(t *testing.T) {
				c := f.dialRecords(f.client)
				c.t = t
				requests := 1
				switch when {
				case "after":
					c.write(c.data(request("/wait")))
				case "with the request":
					c.held = c.data(request("/wait"))
				default:
					c.held = c.data(request("/wait") + request("/wait"))
					requests = 2
				}
				if when != "after" {
					tt.end(c)
				}
				for range requests {
					testnet.Receive(t, "a handler", arrived)
				}
				if when == "after" {
					tt.end(c)
				}
				_, _ = io.Copy(io.Discard, c.br)
				c.tcp.Close()
				testnet.Eventually(t, "the connection's end", func() bool { return f.server.Stats().Conns == 0 })
			})
		}
	}
}

// The server finds where requests end, however they are cut into records, and however the records
// are cut into segments.
func TestHTTP1TLSPipelines(t *testing.T) {
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(rw, r.URL.Path, len(body))
	}, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		c := f.dialRecords(f.client)
		var text strings.Builder
		var want []string
		for i := range 100 {
			path := fmt.Sprintf("/%d.%d.", round, i)
			switch rng.IntN(12) {
			case 0: // longer than the buffer, together with the previous one
				fmt.Fprintf(&text, "GET %s HTTP/1.1\r\nHost: test\r\nX: %s\r\n\r\n", path, strings.Repeat("x", rng.IntN(turnBytes)))
				path += "0"
			case 1:
				n := rng.IntN(2 * turnBytes)
				fmt.Fprintf(&text, "POST %s HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%s", path, n, strings.Repeat("b", n))
				path += fmt.Sprint(n)
			case 2:
				fmt.Fprintf(&text, "POST %s HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", path)
				path += "1"
			default:
				text.WriteString(request(path))
				path += "0"
			}
			want = append(want, path)
		}
		wrote := make(chan bool)
		go func() {
			defer close(wrote)
			recordsMax := 1 << (rng.IntN(14) + 1)
			for rest := text.String(); rest != ""; {
				var records [][]byte
				for range 1 + rng.IntN(5) {
					n := min(1+rng.IntN(recordsMax), len(rest))
					if n > 0 {
						records = append(records, c.data(rest[:n]))
					}
					rest = rest[n:]
				}
				c.pieces(bytes.Join(records, nil), 1+rng.IntN(5000))
			}
		}()
		for _, want := range want {
			if got := c.answer(); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		<-wrote
		c.write(c.Make(testnet.RecordAlert, testnet.CloseNotify))
		c.awaitEOF()
		c.tcp.Close()
	}
	stats := f.server.Stats()
	if stats.Requests < 100 {
		t.Errorf("got %+v, want more requests", stats)
	}
}

// After a request that fills the buffer, it is not known whether crypto/tls has more. The client's
// end is noticed anyway.
func TestHTTP1TLSFullBuffer(t *testing.T) {
	arrived := make(chan bool, 1)
	f := startOurs(t, waitForEnd(arrived), nil)
	text := "GET /wait HTTP/1.1\r\nHost: test\r\nX: "
	text += strings.Repeat("x", turnBytes-len(text)-4) + "\r\n\r\n"
	for _, later := range []bool{false, true} {
		c := f.dialRecords(f.client)
		if !later {
			c.held = c.data(text)
		} else {
			c.write(c.data(text))
			testnet.Receive(t, "the handler", arrived)
		}
		c.write(c.Make(testnet.RecordAlert, testnet.CloseNotify))
		if !later {
			testnet.Receive(t, "the handler", arrived)
		}
		if got := c.answer(); got != "/wait" {
			t.Errorf("got %q", got)
		}
		c.awaitEOF()
		c.tcp.Close()
	}
	f.wantCounted(2)
}

// TestHTTP1TLSState: Request.TLS is the connection's state, and the same for all of its requests. A
// request may arrive together with the end of the handshake.
func TestHTTP1TLSState(t *testing.T) {
	type key struct{}
	states := make(chan *tls.ConnectionState, 1)
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		state := r.Context().Value(key{}).(*tls.Conn).ConnectionState()
		if r.TLS.ServerName != "localhost" || r.TLS.Version != state.Version || r.TLS.CipherSuite != state.CipherSuite || !r.TLS.HandshakeComplete {
			t.Errorf("got %+v, want %+v", r.TLS, state)
		}
		states <- r.TLS
	}, func(f *fixture) {
		f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, key{}, c) }
	})
	raw := &holding{Conn: f.dialTCP().Conn, passes: 1} // the first flight goes out, later bytes don't
	tc := tls.Client(raw, f.client)
	c := &client{tc, f, bufio.NewReader(tc)}
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	c.send(request("/"))
	raw.Conn.Write(raw.held)
	raw.passes = -1
	c.answer()
	first := testnet.Receive(t, "Request.TLS", states)
	c.get("/")
	if got := testnet.Receive(t, "Request.TLS", states); got != first {
		t.Error("the second request has another Request.TLS")
	}
	for nc := range f.snapshot() {
		if _, ok := nc.(*tls.Conn); !ok {
			t.Errorf("ConnState got a %T, want a *tls.Conn", nc)
		}
	}
	f.wantCounted(2)
}
