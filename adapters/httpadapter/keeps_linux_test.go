//go:build !percore_net

package httpadapter

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"testing"

	"github.com/percore/percore"
	upload "github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/internal/testnet"
)

// TestKeepsNothing: the client knows the bodies of this package's servers, which don't keep memory, also
// behind a ReverseProxy, and no others.
func TestKeepsNothing(t *testing.T) {
	proxied := make(chan bool, 1)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			proxied <- upload.KeepsNothing(r.Body)
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
		}),
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		direct, wrapped := upload.KeepsNothing(r.Body), upload.KeepsNothing(struct{ io.ReadCloser }{r.Body})
		proxy.ServeHTTP(httpResponse{w}, r)
		fmt.Fprintf(w, "%t %t %t", direct, wrapped, <-proxied)
	})
	for _, major := range []int{1, 2} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(major == 1)
		protocols.SetUnencryptedHTTP2(major == 2)
		srv := &http.Server{Handler: handler, Protocols: protocols}
		ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
		go Serve(srv, ln)
		t.Cleanup(func() { srv.Close() })
		client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		t.Cleanup(client.CloseIdleConnections)
		for _, counted := range []bool{true, false} {
			var body io.Reader = bytes.NewReader([]byte("hello"))
			if !counted {
				body = struct{ io.Reader }{body}
			}
			resp, err := client.Post("http://"+ln.Addr().String(), "text/plain", body)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(got) != "true false true" || err != nil {
				t.Errorf("HTTP/%d, counted %t: got %q, %v", major, counted, got, err)
			}
		}
	}
	for _, body := range []io.Reader{nil, http.NoBody, bytes.NewReader(nil), (*bytes.Buffer)(nil)} {
		if upload.KeepsNothing(body) {
			t.Errorf("%T is known", body)
		}
	}
}

// httpResponse hides WriteHeader, so that a handler can go on writing behind a ReverseProxy.
type httpResponse struct{ http.ResponseWriter }

func (httpResponse) WriteHeader(int) {}
