package debug

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// RefuseHostNames returns a handler that passes requests on to next, and answers 403 to those whose
// Host is a name other than localhost. Use it for pages that listen on a loopback address: an
// attacker's name may lead there, and a page of his in an operator's browser could then read the
// answers (DNS rebinding), which RefuseCrossOrigin can't tell from requests of the same origin. A
// request without Host doesn't come from a browser, and passes. RefuseHostNames panics if next is nil.
func RefuseHostNames(next http.Handler) http.Handler {
	if next == nil {
		panic("debug: RefuseHostNames was called with a nil http.Handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" && r.Host != "" {
			http.Error(w, "Use localhost or an address instead of this host name.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
