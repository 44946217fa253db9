package http2_test

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

func protocols(isHTTP2, overTLS bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!isHTTP2)
	p.SetHTTP2(isHTTP2 && overTLS)
	p.SetUnencryptedHTTP2(isHTTP2 && !overTLS)
	return p
}

// TestSharedConfig: one http.Transport, its Clone, and one tls.Config may be used by several transports
// at a time, whichever protocols they have chosen. config names those of HTTP/2 then, also where that is
// off: such a call fails if the server has chosen them.
func TestSharedConfig(t *testing.T) {
	testnet.NoLeaks(t)
	for _, serverHTTP2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
		}))
		srv.Config.ErrorLog, srv.Config.Protocols = log.New(io.Discard, "", 0), protocols(serverHTTP2, true)
		var config *tls.Config
		srv.TLS, config = testnet.TLS(t)
		srv.EnableHTTP2 = serverHTTP2
		srv.StartTLS()
		t.Cleanup(srv.Close)
		shared := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		// works reports whether a call gets its answer.
		works := func(rt http.RoundTripper) bool {
			resp, err := (&http.Client{Transport: rt}).Get(srv.URL)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return resp.StatusCode == http.StatusOK && string(body) == "hello" && err == nil
		}
		if !works(shared) { // writes to config
			t.Fatal("http.Transport got no answer")
		}
		http1 := shared.Clone()
		http1.Protocols = protocols(false, true)
		only1 := works(http1.Clone())
		type user struct {
			rt   http.RoundTripper
			want bool
		}
		var users []user
		for _, base := range []*http.Transport{shared, shared, shared.Clone(), {TLSClientConfig: config, ForceAttemptHTTP2: true}, http1, http1.Clone()} {
			want := base.Protocols == nil || only1
			ours := httpadapter.NewTransport(base)
			t.Cleanup(ours.CloseIdleConnections)
			users = append(users, user{ours, want}, user{ours, want}, user{base, want})
			if works(ours) != want || works(base) != want { // the base may write to config
				t.Errorf("of the first calls: want that they get an answer: %t", want)
			}
		}
		var all sync.WaitGroup
		for _, u := range users {
			all.Go(func() {
				for range 5 {
					if works(u.rt) != u.want {
						t.Errorf("want a call to get an answer: %t", u.want)
					}
				}
			})
		}
		all.Wait()
	}
}
