package debug

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Requests to addresses and localhost are served, and those to any other name refused.
func TestRefuseHostNames(t *testing.T) {
	h := RefuseHostNames(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"localhost": 200, "localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200, "[::1]": 200, "": 200,
		"evil.example:6060": 403, "127.0.0.1.evil.example": 403, "localhost.": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != want {
			t.Errorf("Host %q: got %d, want %d", host, rec.Code, want)
		}
	}
}
