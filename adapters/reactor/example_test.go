package reactor_test

import (
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
		reactor.Serve(ln, echo{}) // until ln is closed
	}()

	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
	ln.Close()
	<-done
	// Output: hello <nil>
}
