package zerocopy_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"github.com/percore/percore/internal/zerocopy"
)

// sendFile sends a file to a connection: in the kernel, if it can, and otherwise,
// or as far as it couldn't, through a buffer.
func sendFile(c *net.TCPConn, f *os.File) (int64, error) {
	dst, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	src, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, handled, err := zerocopy.SendFile(dst, src, -1)
	if handled && !errors.Is(err, zerocopy.ErrUnfinished) {
		return n, err
	}
	m, err := io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{f})
	return n + m, err
}

func ExampleSendFile() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		f, err := os.CreateTemp("", "example")
		if err != nil {
			log.Fatal(err)
		}
		defer os.Remove(f.Name())
		defer f.Close()
		io.WriteString(f, "straight from the file")
		f.Seek(0, io.SeekStart)
		if _, err := sendFile(c.(*net.TCPConn), f); err != nil {
			log.Fatal(err)
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	received, err := io.ReadAll(c)
	fmt.Printf("%s %v\n", received, err)
	// Output: straight from the file <nil>
}
