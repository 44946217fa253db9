package httpadapter_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

// An http.Client calls servers on percore's connections. The settings are those of an http.Transport.
func ExampleNewTransport() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := httpadapter.Wrap(&http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "hello, %s", r.URL.Path)
	})})
	go server.Serve(ln)

	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 100
	base.ResponseHeaderTimeout = 10 * time.Second
	transport := httpadapter.NewTransport(base)
	client := &http.Client{Transport: transport, Timeout: time.Minute}

	resp, err := client.Get("http://" + ln.Addr().String() + "/world")
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Println(string(body), err)

	transport.CloseIdleConnections()
	fmt.Println(server.Shutdown(context.Background()))
	// Output:
	// hello, /world <nil>
	// <nil>
}

// A reverse proxy with percore on both sides: for the clients, and for the servers behind it.
func ExampleNewTransport_reverseProxy() {
	backend, err := url.Parse("http://127.0.0.1:9000")
	if err != nil {
		log.Fatal(err)
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = nil                                      // whatever the environment says
	base.DisableCompression = true                        // answers reach clients as the backend sent them
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 1000 // the defaults are 100 and 2
	proxy := &httputil.ReverseProxy{
		Transport: httpadapter.NewTransport(base),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(backend)
			r.SetXForwarded()
		},
	}
	server := httpadapter.Wrap(&http.Server{Addr: ":8080", Handler: proxy, ReadHeaderTimeout: 10 * time.Second})
	log.Fatal(server.ListenAndServe())
}
