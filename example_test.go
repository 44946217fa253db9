package percore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/percore/percore"
)

// An http.Server does not notice the kind of its listener.
func ExampleListen() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0") // was net.Listen
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "you asked for", r.URL.Path)
	})}
	go srv.Serve(ln)

	resp, err := http.Get("http://" + ln.Addr().String() + "/index")
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Printf("%s%v\n", body, err)

	http.DefaultClient.CloseIdleConnections()
	fmt.Println(srv.Shutdown(context.Background()))
	// Output:
	// you asked for /index
	// <nil>
	// <nil>
}

// A few long-lived connections, such as gRPC clients', are spread evenly over the loops. A client
// that has vanished is noticed within 45 seconds.
func ExampleListenConfig() {
	lc := percore.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     30 * time.Second,
			Interval: 5 * time.Second,
			Count:    3,
		},
		LeastLoaded:   true,
		OnAcceptError: func(err error) { log.Printf("accepting is put off: %v", err) },
	}
	ln, err := lc.Listen(context.Background(), "tcp4", "localhost:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()

	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	server, err := ln.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	fmt.Println(server.RemoteAddr().String() == client.LocalAddr().String())
	// Output: true
}

// With one Serve call for each loop, a separate goroutine accepts every loop's connections.
// Shutdown closes all of them.
func ExampleListener_PerLoop() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	parts, err := ln.(*percore.Listener).PerLoop()
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Handler: http.NotFoundHandler()}
	for _, part := range parts {
		go srv.Serve(part)
	}

	resp, err := http.Get("http://" + ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)

	http.DefaultClient.CloseIdleConnections()
	fmt.Println(srv.Shutdown(context.Background()))
	// Output:
	// 404 Not Found
	// <nil>
}

// A connection that waits for its client holds neither a goroutine nor a buffer here. Both exist
// only while there is something to read.
//
// The client's first two messages come in one packet, so that the reader has both when
// it returns the first. The callback would not be called for the second: there is
// nothing left in the kernel. So it is armed when nothing is buffered.
func ExampleConn_OnReadable() {
	done := make(chan struct{})
	var await func(c *percore.Conn)
	serve := func(c *percore.Conn) {
		r := bufio.NewReader(c)
		for more := true; more; more = r.Buffered() > 0 {
			line, err := r.ReadString('\n')
			if err != nil {
				fmt.Println(err)
				c.Close()
				close(done)
				return
			}
			fmt.Print(line)
			c.Write([]byte{'.'})
		}
		await(c) // without r, which is empty
	}
	await = func(c *percore.Conn) {
		// The callback must not block. An error that it is told comes out of Read, too. So it does if nothing
		// was armed: a closed connection fails there, and off Linux, where there are no callbacks, Read waits.
		if err := c.OnReadable(func(error) { go serve(c) }); err != nil {
			go serve(c)
		}
	}

	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	c, err := ln.(*percore.Listener).AcceptConn()
	if err != nil {
		log.Fatal(err)
	}
	await(c)

	for _, text := range []string{"one\ntwo\n", "three\n"} {
		io.WriteString(client, text)
		io.ReadFull(client, make([]byte, strings.Count(text, "\n"))) // the answers
	}
	client.Close()
	<-done
	// Output:
	// one
	// two
	// three
	// EOF
}
