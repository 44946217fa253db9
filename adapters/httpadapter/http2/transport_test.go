package http2

import (
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
	done, cancels := make(chan struct{}), make(chan (<-chan struct{}), 1)
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer srv.Close()
	defer close(done)
	tr := New(&http.Transport{Proxy: func(req *http.Request) (*url.URL, error) {
		//lint:ignore SA1019 http.Client still uses it
		cancels <- req.Cancel
		return nil, nil
	}})
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: 20 * time.Millisecond}
	_, err := c.Get(srv.URL)
	const want = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
	if err == nil || err.Error() != `Get "`+srv.URL+`": `+want {
		t.Errorf("got %v, want %s", err, want)
	}
	if <-cancels != nil {
		t.Error("got a request with Cancel")
	}
}
