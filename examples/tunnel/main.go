// Command tunnel carries many TCP connections over one HTTP/2 connection. Each is a stream, with a
// window of its own: a slow one holds up no other.
//
//	go run ./tunnel -addr localhost:9000 -allow localhost:5432,localhost:6379
//	go run ./tunnel -via localhost:9000 -addr localhost:15432 -to localhost:5432
//
// The first process is at the far end. It is a server of package h2, which connects to where the
// :authority of a CONNECT says. The second one is a client of net/http.
package main

import (
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
)

func main() {
	address := flag.String("addr", "localhost:9000", "address to listen on")
	allow := flag.String("allow", "", "far end: where clients may connect to, separated by commas")
	via := flag.String("via", "", "near end: address of the far end")
	to := flag.String("to", "", "near end: where connections go")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if *via != "" {
		log.Fatal(newNearEnd(*via, *to).serve(ln))
	}
	log.Fatal(newFarEnd(strings.Split(*allow, ",")).Serve(ln))
}

// newFarEnd returns a server that connects to the addresses in allow.
func newFarEnd(allow []string) *h2.Server {
	return h2.New(h2.HandlerFunc(func(s *h2.Stream, r *h2.Request) {
		switch {
		case r.Method != http.MethodConnect || r.Protocol != "":
			answer(s, http.StatusMethodNotAllowed)
		case !slices.Contains(allow, r.Authority):
			answer(s, http.StatusForbidden)
		default:
			connect(s, r.Authority)
		}
	}), h2.Config{Streams: 1000})
}

// answer ends a stream with a status.
func answer(s *h2.Stream, status int) {
	_ = s.Send(h2.Message{Status: status, End: true}) // it fails only if the client has gone
}

// connect makes a stream a connection to the given address.
func connect(s *h2.Stream, to string) {
	there, err := percore.Dial("tcp", to)
	if err != nil {
		log.Print(err)
		answer(s, http.StatusBadGateway)
		return
	}
	defer there.Close()
	if err := s.Send(h2.Message{Status: http.StatusOK}); err != nil {
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := io.Copy(there, s); err != nil {
			there.Close() // a reset, or the connection is lost
			return
		}
		closeWrite(there)
	}()
	if _, err := io.Copy(s, there); err != nil {
		s.Reset(h2.ConnectError)
	} else {
		_ = s.Send(h2.Message{End: true})
	}
	<-sent
}

// closeWrite ends the stream to the other end of c, which may still answer.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// nearEnd sends the connections that it accepts through the tunnel.
type nearEnd struct {
	via, to string
	client  *http.Transport
}

func newNearEnd(via, to string) *nearEnd {
	n := &nearEnd{via, to, &http.Transport{Protocols: new(http.Protocols)}}
	n.client.Protocols.SetUnencryptedHTTP2(true)
	return n
}

func (n *nearEnd) serve(ln net.Listener) error {
	if n.to == "" {
		return errors.New("-to is missing: give the address that connections go to")
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go n.forward(c)
	}
}

// forward sends a connection through the tunnel and returns when both directions have ended.
func (n *nearEnd) forward(c net.Conn) {
	defer c.Close()
	up := &upload{Reader: c, ended: make(chan struct{})}
	resp, err := n.client.RoundTrip(&http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Scheme: "http", Host: n.via},
		Host:   n.to,
		Header: make(http.Header),
		Body:   up,
	})
	if err != nil {
		log.Print(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		log.Printf("%s: the far end says %s", n.to, resp.Status)
		return
	}
	if _, err := io.Copy(c, resp.Body); err != nil {
		return // the other direction is useless now
	}
	closeWrite(c)
	<-up.ended
}

// upload is the direction to the far end, as the body of a request.
type upload struct {
	io.Reader
	once  sync.Once
	ended chan struct{} // closed by Close
}

// Close is called by the Transport when it reads no more.
func (u *upload) Close() error {
	u.once.Do(func() { close(u.ended) })
	return nil
}
