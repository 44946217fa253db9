package reactor_test

import (
	"bytes"
	"fmt"
	"io"
	"net"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

// echo sends back what comes.
type echo struct{}

func (echo) Open(*reactor.Conn)         {}
func (echo) Close(*reactor.Conn, error) {}

func (echo) Data(c *reactor.Conn, p []byte) (used int) {
	c.Write(p)
	return len(p)
}

func ExampleServe() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		reactor.Serve(ln, echo{}, reactor.Config{}) // until ln is closed
	}()

	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
	ln.Close()
	<-done
	// Output: hello <nil>
}

// proxy parses a line with an address on the loop, and then becomes a blocking copy.
type proxy struct{ echo }

func (proxy) Data(c *reactor.Conn, p []byte) (used int) {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		return 0 // until the line is whole
	}
	address := string(p[:end])
	conn, buffered, err := c.Hijack()
	if err != nil {
		return len(p)
	}
	go func() {
		defer conn.Close()
		upstream, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		defer upstream.Close()
		upstream.Write(buffered[end+1:])
		upstream.(*net.TCPConn).ReadFrom(conn) // until the client has ended its part
		upstream.(*net.TCPConn).CloseWrite()
		io.Copy(conn, upstream)
	}()
	return 0
}

func ExampleConn_Hijack() {
	var servers [2]*reactor.Server
	var addrs [2]string
	for i, h := range []reactor.Handler{echo{}, proxy{}} {
		ln, err := percore.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Println(err)
			return
		}
		servers[i], _ = reactor.New(h, reactor.Config{})
		addrs[i] = ln.Addr().String()
		go servers[i].Serve(ln)
		defer servers[i].Close()
	}
	c, err := net.Dial("tcp", addrs[1])
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "%s\nhello through a proxy", addrs[0])
	c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
	// Output: hello through a proxy <nil>
}
