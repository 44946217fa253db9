package debug

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// RefuseHostNames returns a handler that passes requests on to next, but answers 403 if the Host is a
// name other than localhost. Use it for pages on a loopback address. An attacker's name may lead
// there, so a page of his in an operator's browser could read the answers (DNS rebinding), and
// RefuseCrossOrigin can't tell its requests from same-origin requests. A request without Host doesn't
// come from a browser, and passes. RefuseHostNames panics if next is nil.
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
