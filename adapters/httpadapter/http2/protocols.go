package http2

import (
	"net/http"
	"slices"

	"github.com/percore/percore/adapters/httpadapter/internal/client/streams"
	"github.com/percore/percore/internal/tlsread"
)

// settle makes the base decide whether it speaks HTTP/2, as with its first request, and takes over the
// decision. The base may change its fields then, so read them only afterwards.
func (t *Transport) settle() {
	t.settled.Do(func() {
		again := t.base.Clone() // makes it decide
		t.alpn = len(t.base.TLSNextProto) > 0
		isUsers := again.TLSNextProto != nil // the user has set the field, or has configured another client
		settings, known := settingsOfHTTP2(t.base, isUsers)
		counts := settings != nil && settings.CountError != nil
		if t.ownH2 = t.alpn && known && !counts; t.ownH2 {
			t.client = streams.NewClient(t.base, settings)
		}
	})
}

// speaksOnlyH2 reports whether requests of a scheme are served here over HTTP/2, and never over
// HTTP/1.1.
func (t *Transport) speaksOnlyH2(scheme string) bool {
	p := t.base.Protocols
	if p == nil || p.HTTP1() || !(scheme == "http" && p.UnencryptedHTTP2() || scheme == "https" && p.HTTP2()) {
		return false
	}
	t.settle()
	return t.ownH2
}

// servesTLS returns why requests over TLS are not served here. onlyH1 says that the request is for
// HTTP/1.1, even if the base speaks HTTP/2.
func (t *Transport) servesTLS(onlyH1 bool) reason {
	t.settle()
	if t.dialsTLS() && (onlyH1 && t.alpn || t.base.Protocols != nil && !t.base.Protocols.HTTP1()) {
		return otherDialer // it may come to HTTP/2, which can't be asked for
	}
	if !onlyH1 && t.alpn && !t.ownH2 || probeTLS() != nil {
		return otherProtocol
	}
	return served
}

// probeTLS is a variable for tests.
var probeTLS = tlsread.Probe

// The bits of pool.Route.Kind.
const (
	overTLS uint8 = 1 << iota
	onlyH1        // without ALPN, for requests that HTTP/2 can't serve; without TLS as net/http has it
	clearH2       // HTTP/2 without TLS
)

// mayShare reports whether calls share connections of a kind, over HTTP/2, if the server speaks it.
func (t *Transport) mayShare(k uint8) bool { return k&clearH2 != 0 || k == overTLS && t.ownH2 }

// refusesH2 returns why a request that may go over HTTP/2 is not served here: net/http judges it.
func (c *call) refusesH2(req *http.Request) reason {
	if req.Method == http.MethodConnect || c.Kind&onlyH1 != 0 || c.Target[0] != '/' && c.Target != "*" {
		return otherRequest
	}
	h := req.Header
	if !isOneOf(h["Upgrade"], "", "chunked") || !isOneOf(h["Transfer-Encoding"], "", "chunked") || !isOneOf(h["Connection"], "", "close", "keep-alive") {
		return otherRequest
	}
	return served
}

// isOneOf reports whether a field is missing, or has a single, known value.
func isOneOf(values []string, known ...string) bool {
	return len(values) == 0 || len(values) == 1 && slices.Contains(known, values[0])
}
