package frame_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/adapters/reactor/frame"
)

// shout answers each line with the same in capital letters.
type shout struct{}

func (shout) Open(*reactor.Conn)         {}
func (shout) Close(*reactor.Conn, error) {}

func (shout) Data(c *reactor.Conn, p []byte) (used int) {
	for {
		line, n, err := frame.Line(p[used:], 1024)
		if err != nil {
			c.Abort() // the line is too long
			return used
		}
		if n == 0 {
			return used // the rest comes again, with more
		}
		used += n
		c.Write(append(bytes.ToUpper(line), '\n'))
	}
}

// A reactor's handler takes the lines out of what has come, and leaves the beginning of the next one.
func ExampleLine() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		reactor.Serve(ln, shout{}, reactor.Config{})
	}()

	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "hello\r\nworld\nno end")
	c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Printf("%q %v\n", answer, err)
	ln.Close()
	<-done
	// Output: "HELLO\nWORLD\n" <nil>
}

// Messages with two bytes of length in front are written and read with the same Prefix.
func ExamplePrefix() {
	prefix := frame.Prefix{Bytes: 2, Limit: 16 << 10}

	var p []byte
	for _, message := range []string{"hello", "world"} {
		var err error
		if p, err = prefix.AppendLength(p, len(message)); err != nil {
			log.Fatal(err)
		}
		p = append(p, message...)
	}
	fmt.Printf("%q\n", p)

	for {
		message, used, err := prefix.Next(p)
		if err != nil {
			log.Fatal(err) // a reactor's handler calls Abort
		}
		if used == 0 {
			break // p has no whole message
		}
		fmt.Printf("%s\n", message)
		p = p[used:]
	}
	// Output:
	// "\x00\x05hello\x00\x05world"
	// hello
	// world
}
