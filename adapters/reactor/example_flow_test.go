package reactor_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/adapters/reactor/frame"
)

// start serves h until stop is called, and connects a client.
func start(h reactor.Handler, config reactor.Config) (client net.Conn, stop func() error) {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Panic(err)
	}
	s, err := reactor.New(h, config)
	if err != nil {
		log.Panic(err)
	}
	go s.Serve(ln)
	client, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Panic(err)
	}
	return client, s.Close
}

// converse serves h, sends it text, ends the stream, and returns the answer.
func converse(h reactor.Handler, text string, config reactor.Config) (answer []byte, err error) {
	c, stop := start(h, config)
	defer stop()
	defer c.Close()
	io.WriteString(c, text)
	c.(*net.TCPConn).CloseWrite()
	return io.ReadAll(c)
}

// asking answers each line from a goroutine, and the lines of a client in their order.
type asking struct{ echo }

func (asking) Data(c *reactor.Conn, p []byte) (used int) {
	line, used, err := frame.Line(p, 1024)
	switch {
	case err != nil:
		c.Abort()
	case used > 0:
		question := string(line) // p is the loop's
		c.Pause()                // no other line until this one is answered
		c.Hold()                 // the client may end its stream before
		go func() {
			defer c.Release()
			fmt.Fprintf(c, "an answer to %s\n", question)
			c.Resume()
		}()
	}
	return used
}

func ExampleConn_Pause() {
	answer, err := converse(asking{}, "one\ntwo\n", reactor.Config{})
	fmt.Print(string(answer), err)
	// Output:
	// an answer to one
	// an answer to two
	// <nil>
}

// download sends a file as fast as the client takes it, and holds little of it in memory.
type download struct{ echo }

const (
	fileBytes = 8 << 20
	markBytes = 64 << 10 // WriteHighWaterMark
)

func (d download) Data(c *reactor.Conn, p []byte) (used int) {
	c.SetUser(fileBytes) // what is left
	d.Writable(c)
	return len(p)
}

// Writable is called when most of what Unsent has counted is sent.
func (download) Writable(c *reactor.Conn) {
	left, _ := c.User().(int)
	chunk := make([]byte, 16<<10)
	for left > 0 && c.Unsent() <= markBytes {
		if _, err := c.Write(chunk); err != nil {
			return
		}
		left -= len(chunk)
	}
	c.SetUser(left)
	if left == 0 {
		c.Close() // once all is sent
	}
}

// End keeps the connection open although the client has said all.
func (download) End(*reactor.Conn, []byte) {}

func ExampleConn_Unsent() {
	answer, err := converse(download{}, "GET", reactor.Config{WriteHighWaterMark: markBytes})
	fmt.Println(len(answer), err)
	// Output: 8388608 <nil>
}

// counter counts bytes. Only the loop touches the count, so there is no lock.
type counter struct {
	echo
	loops chan *reactor.Loop
	bytes int
}

func (h *counter) Data(c *reactor.Conn, p []byte) (used int) {
	h.bytes += len(p)
	return len(p)
}

func (h *counter) Close(c *reactor.Conn, err error) { h.loops <- c.Loop() }

func ExampleLoop_Submit() {
	h := &counter{loops: make(chan *reactor.Loop, 1)}
	c, stop := start(h, reactor.Config{})
	defer stop()
	io.WriteString(c, "hello")
	c.Close()

	count := make(chan int, 1)
	if err := (<-h.loops).Submit(func() { count <- h.bytes }); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-count)
	// Output: 5
}

// greeter uses the context that its connections come with.
type greeter struct{ echo }

func (greeter) Data(c *reactor.Conn, p []byte) (used int) {
	fmt.Fprintf(c, "%s says %s", c.User(), p)
	return len(p)
}

func ExampleServer_Attach() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	s, _ := reactor.New(greeter{}, reactor.Config{})
	defer s.Close()
	go func() { // blocking code logs the client in, and handlers do the rest
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		r := bufio.NewReader(conn)
		name, err := r.ReadString('\n')
		if err == nil {
			rest, _ := r.Peek(r.Buffered())
			_, err = s.Attach(conn, rest, name[:len(name)-1])
		}
		if err != nil {
			conn.Close()
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	io.WriteString(c, "anna\nhello")
	c.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(c)
	fmt.Println(string(answer), err)
	// Output: anna says hello <nil>
}

// patient gives clients little time for their first line, and more for the others.
type patient struct{ ended chan error }

func (patient) Open(c *reactor.Conn) { c.SetTimeout(reactor.ReadIdleTimeout(20 * time.Millisecond)) }

func (patient) Data(c *reactor.Conn, p []byte) (used int) {
	_, used, _ = frame.Line(p, 1024)
	if used > 0 {
		c.SetTimeout(reactor.ReadIdleTimeout(time.Minute))
	}
	return used
}

func (h patient) Close(c *reactor.Conn, err error) { h.ended <- err }

func ExampleConn_SetTimeout() {
	h := patient{ended: make(chan error, 1)}
	c, stop := start(h, reactor.Config{})
	defer stop()
	defer c.Close()
	fmt.Println("timeout:", errors.Is(<-h.ended, os.ErrDeadlineExceeded))
	// Output: timeout: true
}
