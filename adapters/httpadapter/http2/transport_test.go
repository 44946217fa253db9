package http2

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithCheck(pool.CheckLeaks)) }

// TestKnownName: http.Client takes the type for one that knows contexts, so a request with a timeout has
// no Cancel, and the error says what has happened.
func TestKnownName(t *testing.T) {
	done, cancels := make(chan struct{}), make(chan (<-chan struct{}), 10)
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer srv.Close()
	defer close(done)
	tr := New(&http.Transport{Proxy: func(req *http.Request) (*url.URL, error) {
		//lint:ignore SA1019 http.Client still uses it
		cancels <- req.Cancel
		return nil, nil
	}})
	defer tr.CloseIdleConnections()
	want := `Get "` + srv.URL + `": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`
	got := ""
	for timeout := 20 * time.Millisecond; got != want && timeout < testnet.HangTimeout; timeout *= 4 {
		c := &http.Client{Transport: tr, Timeout: timeout} // a short one may pass before the request is sent
		_, err := c.Get(srv.URL)
		got = fmt.Sprint(err)
	}
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if <-cancels != nil {
		t.Error("got a request with Cancel")
	}
}
