package h1

import (
	"net/http"
	"testing"
	"time"
)

// TestBeginTimeout: the http.Server's timeouts count, and one below 0 means none.
func TestBeginTimeout(t *testing.T) {
	for _, tt := range []struct {
		srv        *http.Server
		clear, tls time.Duration
	}{
		{&http.Server{}, 0, BeginTime},
		{&http.Server{IdleTimeout: time.Second}, 0, BeginTime},
		{&http.Server{ReadHeaderTimeout: time.Minute}, time.Minute, time.Minute},
		{&http.Server{ReadHeaderTimeout: -1}, 0, 0},
		{&http.Server{WriteTimeout: time.Hour}, 0, time.Hour},
		{&http.Server{WriteTimeout: -1}, 0, 0},
	} {
		s := &Server{Config: Config{HTTP: tt.srv, BeginTime: BeginTime}}
		if clear, tls := s.firstByteTime(false), s.firstByteTime(true); clear != tt.clear || tls != tt.tls {
			t.Errorf("got %v in clear and %v over TLS, want %v and %v", clear, tls, tt.clear, tt.tls)
		}
	}
}
