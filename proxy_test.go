package percore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/testnet"
)

// loopback trusts the clients of the tests.
func loopback() *ProxyProtocol {
	return &ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
}

const (
	headerV1 = "PROXY TCP4 192.0.2.1 198.51.100.1 12345 443\r\n"
	clientV1 = "192.0.2.1:12345"
	serverV1 = "198.51.100.1:443"

	headerLocal = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	headerV2    = "\r\n\r\n\x00\r\nQUIT\n\x21\x21\x00\x24" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x30\x39\x01\xbb"
	clientV2 = "[2001:db8::1]:12345"
	serverV2 = "[2001:db8::2]:443"
)

// captureLog makes slog's default logger write to the result until the test ends.
func captureLog(t *testing.T) *testnet.Log {
	b := new(testnet.Log)
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return b
}

// send writes to a connection of a test.
func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("writing: %v", err)
	}
}

// wantClient fails the test unless c has the addresses, and reads data.
func wantClient(t *testing.T, c net.Conn, remote, local, data string) {
	t.Helper()
	if got := c.RemoteAddr().String(); got != remote {
		t.Errorf("RemoteAddr: got %s, want %s", got, remote)
	}
	if got := c.LocalAddr().String(); got != local {
		t.Errorf("LocalAddr: got %s, want %s", got, local)
	}
	if _, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		if got := c.(interface{ RemoteAddrPort() netip.AddrPort }).RemoteAddrPort().String(); got != remote {
			t.Errorf("RemoteAddrPort: got %s, want %s", got, remote)
		}
	}
	p := make([]byte, len(data))
	c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := io.ReadFull(c, p); string(p) != data || err != nil {
		t.Errorf("reading: got %q, %v, want %q", p, err, data)
	}
	c.SetReadDeadline(time.Time{})
}

// TestProxyHeader sends headers whole, with data after them, and in parts.
func TestProxyHeader(t *testing.T) {
	onLimitedListeners(t, ListenConfig{ProxyProtocol: loopback()}, func(t *testing.T, ln *Listener) {
		for _, c := range []struct{ header, client, server string }{
			{headerV1, clientV1, serverV1},
			{headerV2, clientV2, serverV2},
			{headerLocal, "", ""},
			{"PROXY UNKNOWN\r\n", "", ""},
		} {
			// Before Accept; in two parts, the second with data; and byte by byte.
			for _, parts := range [][]string{
				{c.header + "hello"},
				{c.header, "hello"},
				{c.header[:3], c.header[3:] + "hello"},
				{c.header[:len(c.header)-1], c.header[len(c.header)-1:], "hello"},
				strings.Split(c.header+"hello", ""),
			} {
				client := testnet.Dial(t, ln)
				send(t, client, parts[0])
				next := goAccept(t, ln)
				for _, part := range parts[1:] {
					time.Sleep(time.Millisecond / 4)
					send(t, client, part)
				}
				a := awaitConn(t, next)
				remote, local := c.client, c.server
				if remote == "" {
					remote, local = nameOf(client.LocalAddr()), client.RemoteAddr().String()
				}
				wantClient(t, a, remote, local, "hello")
				wantEchoOf(t, a, client)
				a.Close()
				if got := a.RemoteAddr().String(); got != remote {
					t.Errorf("RemoteAddr after Close: got %s, want %s", got, remote)
				}
			}
		}
		if s := ln.Stats(); s.Conns != 0 || s.BadHeaders != 0 || s.Refused != 0 {
			t.Errorf("got %+v, want none open, bad or refused", s)
		}
	})
}

// headerOf returns a header of version 2 that has so many bytes.
func headerOf(length int) string {
	rest := length - len(headerV2) - 3
	return headerV2[:14] + string([]byte{byte((length - 16) >> 8), byte(length - 16)}) + headerV2[16:] +
		"\xe0" + string([]byte{byte(rest >> 8), byte(rest)}) + strings.Repeat("x", rest)
}

// longHeader returns the longest header that there can be.
func longHeader() string { return headerOf(16 + 1<<16 - 1) }

// TestProxyLongHeader: all that a header of version 2 may have after the addresses is taken. Accept
// returns the connection when its header is whole, however long that is, also if nothing follows: in
// some protocols the server speaks first.
func TestProxyLongHeader(t *testing.T) {
	onLimitedListeners(t, ListenConfig{ProxyProtocol: loopback()}, func(t *testing.T, ln *Listener) {
		for _, length := range []int{512, 3000, 4095, 4096, 4097, 8191, 8192, 8193, 65551} {
			header := headerOf(length)
			for _, part := range []int{length + 5, length, 40 << 10, 3000, 500} {
				client := testnet.Dial(t, ln)
				next := goAccept(t, ln)
				text, behind := header, "hello"
				if part > length {
					text, behind = header+"hello", ""
				}
				for bytes := range slices.Chunk([]byte(text), part) {
					send(t, client, string(bytes))
				}
				a := awaitConn(t, next)
				send(t, client, behind)
				wantClient(t, a, clientV2, serverV2, "hello")
				if got := string(ProxyTLVs(a)); got != header[16+36:] {
					t.Errorf("%d in parts of %d: got %d bytes of TLVs, want the header's", length, part, len(got))
				}
				a.Close()
			}
		}
	})
}

// TestProxyTLVs: a connection has the TLVs of its header, as they were sent, until after Close; and none
// if there are none, or there is no header.
func TestProxyTLVs(t *testing.T) {
	const tlvs = "\x02\x00\x03abc\x04\x00\x00\xea\x00\x01x"
	with := func(header, tlvs string) string {
		return header[:15] + string(rune(header[15]+byte(len(tlvs)))) + header[16:] + tlvs
	}
	unspec := headerLocal[:12] + "\x21" + headerLocal[13:]
	for _, netBuffers := range []bool{false, true} {
		lc := ListenConfig{ProxyProtocol: loopback(), NetBuffers: netBuffers}
		onLimitedListeners(t, lc, func(t *testing.T, ln *Listener) {
			for _, c := range []struct{ header, want string }{
				{headerV1, ""},
				{headerV2, ""},
				{with(headerV2, tlvs), tlvs},
				{with(unspec, tlvs), tlvs},
				{with(headerLocal, tlvs), ""},
				{with(headerV2, "\x00"), ""},
				{with(headerV2, tlvs+"\x04\x01"), tlvs},
			} {
				for _, at := range []int{0, 20} { // in two parts
					client := testnet.Dial(t, ln)
					at = min(at, len(c.header)-1)
					next := goAccept(t, ln)
					send(t, client, c.header[:at])
					send(t, client, c.header[at:]+"x")
					a := awaitConn(t, next)
					wantTLVs := func(what string, nc net.Conn) {
						t.Helper()
						if got := ProxyTLVs(nc); string(got) != c.want || (got == nil) != (c.want == "") {
							t.Errorf("%s, header %q: got %q, want %q", what, c.header, got, c.want)
						} else if got != nil {
							got[0]++ // the caller's
						}
					}
					wantTLVs("new", a)
					wantTLVs("again", a)
					wantTLVs("TLS", tls.Server(a, nil))
					if c.header == with(unspec, tlvs) {
						wantClient(t, a, nameOf(client.LocalAddr()), client.RemoteAddr().String(), "x")
					}
					a.Close()
					wantTLVs("closed", a)
				}
			}
		})
	}
	ln := testnet.Listen(t, Listen, testnet.TCP4)
	testnet.Dial(t, ln)
	plain := mustAccept(t, ln)
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	for _, c := range []net.Conn{plain, server, nil, (*Conn)(nil), new(Conn), tls.Server(server, nil)} {
		if got := ProxyTLVs(c); got != nil {
			t.Errorf("%T: got %q, want none", c, got)
		}
	}
}

// nameOf returns an address as package net shows it to the peer.
func nameOf(a net.Addr) string {
	if a.String() == "" {
		return "@"
	}
	return a.String()
}

// wantEchoOf sends some bytes in both directions.
func wantEchoOf(t *testing.T, a, b net.Conn) {
	t.Helper()
	for range 2 {
		p := make([]byte, 4)
		send(t, a, "ping")
		b.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		if _, err := io.ReadFull(b, p); string(p) != "ping" || err != nil {
			t.Errorf("got %q, %v", p, err)
		}
		a, b = b, a
	}
}

// TestProxyHeaderOvertaken accepts connections while others wait for their header. These end when
// their clients or the listener close.
func TestProxyHeaderOvertaken(t *testing.T) {
	log := captureLog(t)
	proxy := loopback()
	proxy.HeaderTimeout = time.Hour // ends no connection, however slow the machine is
	onLimitedListeners(t, ListenConfig{ProxyProtocol: proxy}, func(t *testing.T, ln *Listener) {
		slow, gone, cut := testnet.Dial(t, ln), testnet.Dial(t, ln), testnet.Dial(t, ln)
		send(t, slow, headerV1[:10])
		send(t, cut, headerV2[:20])
		next := goAccept(t, ln)
		fast := testnet.Dial(t, ln)
		send(t, fast, headerV1+"x")
		a := awaitConn(t, next)
		defer a.Close()
		wantClient(t, a, clientV1, serverV1, "x")
		next = goAccept(t, ln)
		gone.Close()
		cut.Close()
		testnet.Eventually(t, "a bad header", func() bool { return ln.Stats().BadHeaders == 1 })
		testnet.Eventually(t, "two open connections", func() bool { return onNet || ln.Stats().Conns == 2 })
		waiting := testnet.Dial(t, ln)
		send(t, waiting, headerV1[:10])
		ln.Close()
		wantErr(t, "Accept", testnet.Receive(t, "Accept", next).err, "accept", net.ErrClosed)
		if err := awaitEnd(slow); errors.Is(err, os.ErrDeadlineExceeded) { // a reset if its bytes are unread
			t.Error("the slow client: its connection stays open")
		}
		_ = awaitEnd(waiting) // or a reset: it may still be in the backlog
	})
	wantProxyLog(t, log, "PROXY header")
}

// TestProxyHeaderTimeout sends headers too late.
func TestProxyHeaderTimeout(t *testing.T) {
	log := captureLog(t)
	proxy := loopback()
	proxy.HeaderTimeout = 20 * time.Millisecond
	onLimitedListeners(t, ListenConfig{ProxyProtocol: proxy}, func(t *testing.T, ln *Listener) {
		next := goAccept(t, ln)
		for i, part := range []string{"", headerV1[:10], headerV2[:20]} {
			client := testnet.Dial(t, ln)
			io.WriteString(client, part) // fails, or turns the end into a reset, if the time is up
			if err := awaitEnd(client); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("after %q: the connection stays open", part)
			}
			testnet.Eventually(t, "the count", func() bool { return ln.Stats().BadHeaders == uint64(i+1) })
		}
		testnet.Eventually(t, "no open connection", func() bool { return onNet || ln.Stats().Conns == 0 })
		ln.Close()
		wantErr(t, "Accept", testnet.Receive(t, "Accept", next).err, "accept", net.ErrClosed)
	})
	wantProxyLog(t, log, accepting.ErrHeaderTimeout.Error())
}

// wantProxyLog waits for a line with text in the log of onLimitedListeners. Each listener logs at
// most one line.
func wantProxyLog(t *testing.T, log fmt.Stringer, text string) {
	t.Helper()
	testnet.Eventually(t, "a line in the log", func() bool { return strings.Contains(log.String(), text) })
	if n := strings.Count(log.String(), "\n"); n > 2 {
		t.Errorf("got %d lines in the log, want one for each listener:\n%s", n, log)
	}
}

// TestProxyHeaderBad sends bytes that are not a header.
func TestProxyHeaderBad(t *testing.T) {
	captureLog(t)
	onLimitedListeners(t, ListenConfig{ProxyProtocol: loopback(), MaxConns: 1}, func(t *testing.T, ln *Listener) {
		texts := []string{
			"GET / HTTP/1.1\r\n\r\n",
			"PROXY TCP4 192.0.2.1\r\n",
			"PROXY " + strings.Repeat("x", 200),
			headerV2[:12] + "\x31" + headerV2[13:],
			"X",
		}
		next := goAccept(t, ln)
		for i, text := range texts {
			client := testnet.Dial(t, ln)
			send(t, client, text)
			client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
			if n, err := client.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%q: the client got %d bytes, %v", text, n, err)
			}
			testnet.Eventually(t, "the count", func() bool { return ln.Stats().BadHeaders == uint64(i+1) })
		}
		client := testnet.Dial(t, ln)
		send(t, client, headerV1)
		a := awaitConn(t, next)
		wantClient(t, a, clientV1, serverV1, "")
		if n := ln.Stats().Conns; n != 1 {
			t.Errorf("got %d open, want 1", n)
		}
		a.Close()
	})
}

// TestProxyHeaderUntrusted connects from an address that is not trusted.
func TestProxyHeaderUntrusted(t *testing.T) {
	log := captureLog(t)
	testnet.NoLeaks(t)
	elsewhere := ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::ffff:198.51.100.0/120")}}
	ln := listen(t, ListenConfig{ProxyProtocol: &elsewhere}, "tcp", "127.0.0.1:0")
	next := goAccept(t, ln)
	for i := range 3 {
		client := testnet.Dial(t, ln)
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("the client got something")
		}
		testnet.Eventually(t, "the count", func() bool { return ln.Stats().Refused == uint64(i+1) })
	}
	testnet.Eventually(t, "a line in the log", func() bool { return log.String() != "" })
	if got := log.String(); strings.Count(got, "not in ProxyProtocol.Trusted") != 1 {
		t.Errorf("got the log %q, want one line", got)
	}
	ln.Close()
	testnet.Receive(t, "Accept", next)

	elsewhere.ServeUntrusted = true
	ln = listen(t, ListenConfig{ProxyProtocol: &elsewhere}, "tcp", "127.0.0.1:0")
	client := testnet.Dial(t, ln) // it speaks second
	server := mustAccept(t, ln)
	wantClient(t, server, client.LocalAddr().String(), client.RemoteAddr().String(), "")
	send(t, client, headerV1)
	wantClient(t, server, client.LocalAddr().String(), client.RemoteAddr().String(), headerV1)
}

// TestProxyLimits: OnAccept and OnClose get the client's addresses, and the limit holds.
func TestProxyLimits(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	lc := ListenConfig{
		MaxConns:      2,
		ProxyProtocol: loopback(),
		OnAccept: func(local, remote netip.AddrPort) bool {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, "accept "+remote.String()+" "+local.String())
			return remote.String() == clientV1
		},
		OnClose: func(local, remote netip.AddrPort) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, "close "+remote.String()+" "+local.String())
		},
	}
	onLimitedListeners(t, lc, func(t *testing.T, ln *Listener) {
		calls = nil
		for _, whole := range []bool{true, false} {
			for _, header := range []string{headerV2, headerV1} {
				client := testnet.Dial(t, ln)
				rest := header
				if !whole {
					send(t, client, header[:10])
					rest = header[10:]
				}
				next := goAccept(t, ln)
				send(t, client, rest)
				if header == headerV2 {
					if err := awaitEnd(client); err != nil {
						t.Errorf("the client: got %v", err)
					}
					ln.SetDeadline(time.Unix(1, 0))
				}
				if a := testnet.Receive(t, "Accept", next); a.err == nil {
					a.c.Close()
				}
				ln.SetDeadline(time.Time{})
				client.Close()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		round := "accept " + clientV2 + " " + serverV2 + "|accept " + clientV1 + " " + serverV1 + "|close " + clientV1 + " " + serverV1
		if got := strings.Join(calls, "|"); got != round+"|"+round {
			t.Errorf("got the calls\n%s\nwant\n%s", got, round+"|"+round)
		}
		if s := ln.Stats(); s.Conns != 0 || s.Refused != 2 {
			t.Errorf("got %d open, %d refused, want 0, 2", s.Conns, s.Refused)
		}
	})
}

// TestProxyMany sends headers in parts, from many clients to all sockets at the same time.
func TestProxyMany(t *testing.T) {
	proxy := loopback()
	proxy.HeaderTimeout = time.Hour // or a slow test would lose connections that make room for others
	onLimitedListeners(t, ListenConfig{ProxyProtocol: proxy, MaxConns: 5, LeastLoaded: true}, func(t *testing.T, ln *Listener) {
		echoToMany(t, ln, 8, 20, headerV1)
	})
}
