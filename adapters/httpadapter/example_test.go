package httpadapter_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/admission"
)

// An http.Server as it was, except for one line.
func Example() {
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "hello, %s", r.URL.Path)
	})}
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go httpadapter.Serve(srv, ln) // was srv.Serve(ln)

	resp, err := http.Get("http://" + ln.Addr().String() + "/world")
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Println(string(body), err)

	http.DefaultClient.CloseIdleConnections()
	fmt.Println(srv.Shutdown(context.Background()))
	// Output:
	// hello, /world <nil>
	// <nil>
}

// Shutdown on a signal, as with net/http.
func ExampleServer_Shutdown() {
	server := httpadapter.Wrap(&http.Server{Addr: ":8080", IdleTimeout: 10 * time.Minute})
	down := make(chan struct{})
	go func() {
		defer close(down)
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, os.Interrupt)
		<-interrupted
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			log.Print(err)
		}
		s := server.Stats()
		log.Printf("%d connections are left, net/http has served %d", s.Conns, s.Foreign)
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
	<-down
}

// HTTP/2 in clear is for clients that know beforehand that the server speaks it, such as proxies. Over
// TLS nothing is needed.
func Example_http2InClear() {
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "hello over %s", r.Proto)
	})}
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := httpadapter.Wrap(srv)
	go server.Serve(ln)

	for _, set := range []func(*http.Protocols, bool){(*http.Protocols).SetHTTP1, (*http.Protocols).SetUnencryptedHTTP2} {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		set(tr.Protocols, true)
		resp, err := (&http.Client{Transport: tr}).Get("http://" + ln.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(string(body), err)
		tr.CloseIdleConnections()
	}
	fmt.Println(server.Shutdown(context.Background()))
	// Output:
	// hello over HTTP/1.1 <nil>
	// hello over HTTP/2.0 <nil>
	// <nil>
}

// A server that runs at most 64 handlers at a time. A request that has waited for 200 ms gets 503.
func ExampleLimitWork() {
	limiter := admission.New(admission.Limits{Handlers: 64, Wait: 200 * time.Millisecond})
	exempt := func(r *http.Request) bool { return r.URL.Path == "/healthz" }
	server := httpadapter.Wrap(&http.Server{Addr: ":8080"}, httpadapter.LimitWork(limiter, exempt))
	log.Fatal(server.ListenAndServe())
}
