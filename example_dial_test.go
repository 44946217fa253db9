package percore_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/percore/percore"
)

func ExampleDial() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c)
	}()

	c, err := percore.Dial("tcp", ln.Addr().String()) // was net.Dial
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello")
	answer := make([]byte, 5)
	_, err = io.ReadFull(c, answer)
	fmt.Printf("%s %v\n", answer, err)
	// Output: hello <nil>
}

// An http.Transport, here a reverse proxy's, connects to the servers behind it
// on the loops that its own listener is on.
func ExampleDialer_DialContext() {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "the backend was asked for", r.URL.Path)
	}))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		log.Fatal(err)
	}

	dialer := &percore.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // was net.Dialer
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
	}
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	front := &http.Server{Handler: proxy}
	go front.Serve(ln)
	defer front.Shutdown(context.Background())

	resp, err := http.Get("http://" + ln.Addr().String() + "/index")
	if err != nil {
		log.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Printf("%s%v\n", body, err)
	// Output:
	// the backend was asked for /index
	// <nil>
}
