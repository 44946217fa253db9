// Command connect is an HTTP proxy for CONNECT (RFC 9110, section 9.3.6). Its loops read the
// header, so a client that hasn't sent it yet needs no goroutine. Then the connection becomes a
// blocking one, and the kernel moves the bytes (splice).
//
//	go run ./connect
//	curl --proxy localhost:8888 https://example.com/
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

func main() {
	address := flag.String("addr", "localhost:8888", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(newServer().Serve(ln))
}

// The limits of a header.
const (
	headerBytesMax = 8 << 10
	headerTimeout  = 10 * time.Second
	dialTimeout    = 10 * time.Second
)

func newServer() *reactor.Server {
	server, err := reactor.New(proxy{}, reactor.Config{
		ReadBufferMax: headerBytesMax,
		IdleTimeout:   headerTimeout, // until the first byte
		ReadTimeout:   headerTimeout, // from there to the last
	})
	if err != nil {
		panic(err) // a field above makes no sense
	}
	return server
}

// proxy reads headers.
type proxy struct{}

func (proxy) Open(*reactor.Conn)         {}
func (proxy) Close(*reactor.Conn, error) {}

// Data waits for the whole header and then detaches the connection.
func (proxy) Data(c *reactor.Conn, p []byte) (used int) {
	end := bytes.Index(p, []byte("\r\n\r\n"))
	if end < 0 {
		return 0
	}
	target, ok := parse(string(p[:end]))
	if !ok {
		io.WriteString(c, "HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		c.Close()
		return len(p)
	}
	client, buffered, err := c.Detach()
	if err == nil {
		go forward(client, buffered[end+4:], target)
	}
	return len(p)
}

// parse returns the target of a header.
func parse(header string) (target string, ok bool) {
	line, _, _ := strings.Cut(header, "\r\n")
	words := strings.Split(line, " ")
	if len(words) != 3 || words[0] != "CONNECT" || !strings.HasPrefix(words[2], "HTTP/1.") {
		return "", false
	}
	_, _, err := net.SplitHostPort(words[1])
	return words[1], err == nil
}

// forward connects client with its target and returns when both have ended. It first sends the
// target the bytes that followed the header.
func forward(client net.Conn, behind []byte, target string) {
	defer client.Close()
	server, err := percore.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		fmt.Fprintf(client, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	defer server.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	if _, err := server.Write(behind); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pipe(server, client) })
	both.Go(func() { pipe(client, server) })
	both.Wait()
}

// pipe copies until from ends, and then ends its side of to, which may still answer.
func pipe(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close() // the other direction is useless now
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}
