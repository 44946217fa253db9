//go:build !percore_net

package http2

import (
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestStats: each event is counted, for the transport and for the process.
func TestStats(t *testing.T) {
	release := make(chan bool)
	h := newHostile(t, func(c net.Conn, request string) bool {
		if strings.Contains(request, "/end") {
			return false
		}
		if strings.Contains(request, "/wait") {
			<-release
		}
		return answerHello(c, request)
	})
	before := metrics()
	tr := New(&http.Transport{MaxConnsPerHost: 1, Proxy: func(r *http.Request) (*url.URL, error) {
		if r.URL.Path == "/proxy" {
			return &url.URL{Scheme: "socks5", Host: "127.0.0.1:1"}, nil
		}
		return nil, nil
	}})
	defer tr.CloseIdleConnections()
	want := func(what string, s Stats) {
		t.Helper()
		if s.Declined == nil {
			s.Declined = make(map[string]uint64)
		}
		testnet.Eventually(t, what, func() bool {
			got := tr.Stats()
			if !maps.Equal(got.Declined, s.Declined) {
				return false
			}
			return got.Conns == s.Conns && got.Idle == s.Idle && got.Dialing == s.Dialing && got.Waiting == s.Waiting &&
				got.Unanswered == s.Unanswered && got.Requests == s.Requests && got.Reused == s.Reused && got.Retried == s.Retried
		})
	}
	want("nothing", Stats{})
	for range 2 {
		_ = result(tr, "GET", h.url())
	}
	want("two requests", Stats{Conns: 1, Idle: 1, Requests: 2, Reused: 1})
	answered := make(chan string, 2)
	for range 2 {
		go func() { answered <- result(tr, "GET", h.url()+"wait") }()
	}
	want("a call waits", Stats{Conns: 1, Waiting: 1, Unanswered: 1, Requests: 3, Reused: 2})
	close(release)
	<-answered
	<-answered
	want("none waits", Stats{Conns: 1, Idle: 1, Requests: 4, Reused: 3})
	_ = result(tr, "GET", h.url()+"end")
	want("a request was sent again", Stats{Requests: 5, Reused: 4, Retried: 1})
	_ = result(tr, "GET", h.url()+"proxy")
	for _, r := range []*http.Request{
		{URL: &url.URL{Scheme: "ftp"}, Header: http.Header{}},
		{URL: &url.URL{Scheme: "https", Host: "127.0.0.1:1"}, Header: http.Header{"Upgrade": {"h2c"}}},
		{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Header: http.Header{"a b": nil}},
		{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Header: http.Header{}, ContentLength: 5},
	} {
		_, _ = tr.RoundTrip(r)
	}
	declined := map[string]uint64{"proxy": 1, "scheme": 1, "request": 2, "body": 1}
	want("requests are left to the base", Stats{Requests: 5, Reused: 4, Retried: 1, Declined: declined})
	after := metrics()
	for name, n := range map[string]float64{"requests_total": 5, "reused_total": 4, "retries_total": 1, "declined_total": 5} {
		if got := after[name] - before[name]; got < n { // other tests may run connections down
			t.Errorf("%s has grown by %v, want %v", name, got, n)
		}
	}
}

// metrics returns the metrics of the process, those with a label added up.
func metrics() map[string]float64 {
	all := make(map[string]float64)
	for _, a := range percore.ReadStats().Adapters {
		if a.Adapter == "client" {
			for _, f := range a.Metrics {
				all[f.Name] += f.Value
			}
		}
	}
	return all
}
