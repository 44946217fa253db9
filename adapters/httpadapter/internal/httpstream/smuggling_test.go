package httpstream_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// smuggled are requests that a proxy, or a handler that trusts what it gets, could take for others:
// each as a whole, or as fields behind those of "GET /".
var smuggled = []struct {
	name   string
	fields []string
	body   string
	whole  bool
}{
	{name: "transfer-encoding", fields: []string{"transfer-encoding", "chunked"}, body: "0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"},
	{name: "connection", fields: []string{"connection", "x-secret"}},
	{name: "upgrade", fields: []string{"upgrade", "h2c"}},
	{name: "proxy-connection", fields: []string{"proxy-connection", "keep-alive"}},
	{name: "te", fields: []string{"te", "chunked"}},
	{name: "end of line in a value", fields: []string{"x-a", "b\r\nx-c: d"}},
	{name: "line feed in a value", fields: []string{"x-a", "b\nx-c: d"}},
	{name: "zero in a value", fields: []string{"x-a", "b\x00"}},
	{name: "delete in a value", fields: []string{"x-a", "b\x7f"}},
	{name: "end of line in a name", fields: []string{"x-a: b\r\nx-c", "d"}},
	{name: "colon in a name", fields: []string{"x-a:", "b"}},
	{name: "space in a name", fields: []string{"x-a ", "b"}},
	{name: "upper case in a name", fields: []string{"X-A", "b"}},
	{name: "empty name", fields: []string{"", "b"}},
	{name: "pseudo-header field behind others", fields: []string{"x-a", "b", ":path", "/admin"}},
	{name: "second path", fields: []string{":path", "/admin"}},
	{name: "second authority", fields: []string{":authority", "other.example"}},
	{name: "unknown pseudo-header field", fields: []string{":host", "other.example"}},
	{name: "status in a request", fields: []string{":status", "200"}},
	{name: "user information", fields: []string{":method", "GET", ":scheme", "http", ":authority", "example.com@other.example", ":path", "/"}, whole: true},
	{name: "user information in host", fields: []string{":method", "GET", ":scheme", "http", ":path", "/", "host", "example.com@other.example"}, whole: true},
	{name: "end of line in the method", fields: []string{":method", "GET /admin HTTP/1.1\r\nx: y", ":scheme", "http", ":authority", "x", ":path", "/"}, whole: true},
	{name: "space in the method", fields: []string{":method", "GET /admin", ":scheme", "http", ":authority", "x", ":path", "/"}, whole: true},
	{name: "end of line in the path", fields: []string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/ HTTP/1.1\r\nx: y"}, whole: true},
	{name: "path without a slash, CVE-2026-33186", fields: []string{":method", "POST", ":scheme", "http", ":authority", "x", ":path", "package.Service/Method"}, whole: true},
	{name: "empty path", fields: []string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", ""}, whole: true},
	{name: "another scheme", fields: []string{":method", "GET", ":scheme", "file", ":authority", "x", ":path", "/"}, whole: true},
	{name: "no scheme", fields: []string{":method", "GET", ":authority", "x", ":path", "/"}, whole: true},
	{name: "CONNECT with a path", fields: []string{":method", "CONNECT", ":authority", "x", ":path", "/admin"}, whole: true},
}

// TestSmuggling: the handler gets no request that others could read in another way, and the
// connection goes on. A body that is not as long as declared is an error of its Read.
func TestSmuggling(t *testing.T) {
	if !servesHTTP2(t) {
		t.Skip("net/http serves HTTP/2 here, and ends what this server resets: run it on Linux, without the build tag percore_net")
	}
	var paths seen
	s := ways[1].start(t, func(*http.Server) {}, func(*seen) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/length" {
				readAll(&paths, r)
				return
			}
			paths.note("%s", r.URL.Path)
		}
	})
	p := s.peer
	id := uint32(1)
	for _, bad := range smuggled {
		list := bad.fields
		if !bad.whole {
			list = slices.Concat(get("POST", "/"), bad.fields)
		}
		p.Headers(id, bad.body == "", list...)
		if bad.body != "" {
			p.Data(id, bad.body, true)
		}
		p.Flush()
		for got := ""; !strings.HasPrefix(got, "reset "); {
			if got = p.Next(); got == "end" || strings.HasPrefix(got, "error") || strings.Contains(got, ":status=200") {
				t.Fatalf("%s: got %q, want a reset", bad.name, got)
			}
		}
		id += 2
	}
	for _, length := range []string{"1", "2", "x", "-1", "+3", "3, 3", "0x3", "1099511627776"} {
		p.Headers(id, false, get("POST", "/length", "content-length", length)...).Data(id, "abc", true).Flush()
		for got := ""; !strings.HasSuffix(got, " end") && !strings.HasPrefix(got, "reset "); {
			got = p.Next()
		}
		id += 2
	}
	// This is allowed: the authority counts, and not host.
	p.Headers(id, true, get("GET", "/good", "host", "other.example")...).Flush()
	for got := ""; !strings.HasSuffix(got, " end"); got = p.Next() {
	}
	if got := paths.text(); strings.Contains(got, "<nil>") || !strings.HasSuffix(got, "/good") || strings.Count(got, "/") != 1 {
		t.Errorf("the handler saw\n\t%s\nwant errors of bodies, and /good", got)
	}
}
