package h2_test

import (
	"io"
	"log"
	"net"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
)

// A tunnel: each CONNECT of HTTP/2 becomes a connection to the host that it names, so that a client
// has many of them over one. Windows and resets of the one side are waits and ends of the other.
func Example() {
	ln, err := percore.Listen("tcp", "127.0.0.1:8443")
	if err != nil {
		log.Fatal(err)
	}
	server := h2.New(h2.HandlerFunc(tunnel), h2.Config{Streams: 1000})
	log.Fatal(server.Serve(ln))
}

func tunnel(s *h2.Stream, r *h2.Request) {
	if r.Method != "CONNECT" {
		_ = s.Send(h2.Message{Status: 405, End: true})
		return
	}
	there, err := net.Dial("tcp", r.Authority)
	if err != nil {
		_ = s.Send(h2.Message{Status: 502, End: true})
		return
	}
	defer there.Close()
	if err := s.Send(h2.Message{Status: 200}); err != nil {
		return
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(there, s)
		if err == nil {
			err = there.(*net.TCPConn).CloseWrite()
		} else {
			there.Close() // the client has reset the stream
		}
		sent <- err
	}()
	if _, err := io.Copy(s, there); err != nil {
		s.Reset(h2.ConnectError)
	} else {
		_ = s.Send(h2.Message{End: true})
	}
	<-sent
}
