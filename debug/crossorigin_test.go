package debug

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Requests of other origins are refused, whatever the method, and all others are served.
func TestRefuseCrossOrigin(t *testing.T) {
	h := RefuseCrossOrigin(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			t.Error("the handler sees a POST")
		}
	}))
	for _, tt := range []struct {
		name   string
		header [2]string
		want   int
	}{
		{"curl", [2]string{}, http.StatusOK},
		{"typed", [2]string{"Sec-Fetch-Site", "none"}, http.StatusOK},
		{"the page itself", [2]string{"Sec-Fetch-Site", "same-origin"}, http.StatusOK},
		{"another site", [2]string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"another port of this host", [2]string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		{"no Sec-Fetch-Site, own origin", [2]string{"Origin", "http://127.0.0.1:6060"}, http.StatusOK},
		{"no Sec-Fetch-Site, another origin", [2]string{"Origin", "http://attacker.example"}, http.StatusForbidden},
		{"no Sec-Fetch-Site, no origin", [2]string{"Origin", "null"}, http.StatusForbidden},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
			r := httptest.NewRequest(method, "http://127.0.0.1:6060/debug/pprof/trace?seconds=100", nil)
			if tt.header[0] != "" {
				r.Header.Set(tt.header[0], tt.header[1])
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if rec.Code != tt.want {
				t.Errorf("%s, %s: got %d, want %d", tt.name, method, rec.Code, tt.want)
			}
		}
	}
}
