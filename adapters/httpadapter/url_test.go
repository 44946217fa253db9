package httpadapter

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// aTarget is a request's method and target.
type aTarget struct{ method, target string }

// targets has each byte in a path and in a query, as it is and encoded, and targets of other forms.
func targets() (all []aTarget) {
	for b := range 256 {
		raw := string([]byte{byte(b)})
		for _, target := range []string{"/a" + raw + "b", "/a?" + raw, fmt.Sprintf("/%%%02X?%%%02[1]X", b), fmt.Sprintf("/%%%02x%s", b, raw)} {
			all = append(all, aTarget{"GET", target})
		}
	}
	for _, target := range []string{
		"*", "/*", "//", "//h/x", "//h/(x)?y", "/?", "/??", "/a?b?", "/(?", "/a?b#c", "/a#b?c", "/%", "/%4", "/%zz", "/?%", "/?%zz", "/a/../b", "/.", "a",
		"/a;b", "/wiki/Go_(game)", "/odata/Users('a')", "/s3/key!*.txt", "/[1]", "/%28(", "/a%2fb", "/a%2Fb(", "h:80", "h",
		"http://h/(p)?q", "http://h", "http://h?q", "HTTP://u:p@h:80/p", "http:///p", "http:p", "urn:x", "http://[::1]/", "http://h%41/",
	} {
		all = append(all, aTarget{"GET", target}, aTarget{"OPTIONS", target}, aTarget{"CONNECT", target})
	}
	return all
}

// describeURL answers with all that a handler sees of a target.
func describeURL(w http.ResponseWriter, r *http.Request) {
	u := *r.URL
	u.User = nil // a pointer, whose text is String's
	fmt.Fprintf(w, "%s %q %q: %#v, %q, %q, %v", r.Method, r.RequestURI, r.Host, u, u.EscapedPath(), u.RequestURI(), r.URL)
}

// TestSameURL: handlers get the URL over HTTP/2 that they get from net/http, for each byte. (http1's
// TestSameBytes is about HTTP/1.)
func TestSameURL(t *testing.T) {
	needParking(t)
	serve := func(w way) net.Listener {
		return newSide(t, w, func(srv *http.Server) { srv.Protocols = clearHTTP2(true) },
			func(_ *side, rw http.ResponseWriter, r *http.Request) { describeURL(rw, r) }).ln
	}
	got, want := targetAsker(t, serve(withAdapter)), targetAsker(t, serve(onNet))
	for _, a := range targets() {
		if got, want := got(a), want(a); got != want {
			t.Errorf("%s %q: got\n%s\nwant\n%s", a.method, a.target, got, want)
		}
	}
}

// targetAsker returns a function that asks over HTTP/2, and returns the body, or how the stream ended.
func targetAsker(t *testing.T, ln net.Listener) func(aTarget) string {
	var p *frames.Peer
	var id uint32
	return func(a aTarget) string {
		if p == nil {
			c := testnet.Dial(t, ln)
			_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
			p, id = frames.NewPeer(t, c).Window(0, 1<<30), 1
		}
		fields := []string{":method", a.method, ":scheme", "http", ":authority", "test", ":path", a.target}
		if a.method == http.MethodConnect {
			fields = []string{":method", a.method, ":authority", a.target}
		}
		p.Headers(id, true, fields...).Flush()
		defer func() { id += 2 }()
		for {
			switch f := p.Next(); {
			case strings.HasPrefix(f, "data"), strings.HasPrefix(f, "reset"):
				return f
			case strings.HasSuffix(f, " end"):
				return "an empty answer" // of OPTIONS *
			case f == "end", strings.HasPrefix(f, "error"):
				p = nil
				return "end"
			}
		}
	}
}
