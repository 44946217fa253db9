package debug

import "net/http"

// RefuseCrossOrigin returns a handler that passes requests on to next, but answers 403 if a page from
// another origin makes a browser send the request. Another port of the same host is another origin.
// Use it for net/http/pprof, where a request does harm even if the page can't read the answer: it
// starts a profile or a trace. [Handler] already has it.
//
// The rule is the same as in [http.CrossOriginProtection], but also covers GET and HEAD. It passes
// addresses that a person types, and requests from programs such as curl and Prometheus. Browsers say
// where a request comes from (Sec-Fetch-Site) only to https and to addresses of their own machine.
// Elsewhere the rule recognizes only requests with an Origin, such as requests of scripts that want to
// read the answer. RefuseCrossOrigin panics if next is nil.
func RefuseCrossOrigin(next http.Handler) http.Handler {
	if next == nil {
		panic("debug: RefuseCrossOrigin was called with a nil http.Handler")
	}
	var rule http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		judged := r.WithContext(r.Context()) // a copy
		judged.Method = http.MethodPost      // the rule lets GET pass
		if rule.Check(judged) != nil {
			http.Error(w, "A page of another site has sent this request: enter the address by hand instead.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
