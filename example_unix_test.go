//go:build unix

package percore_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"syscall"

	"github.com/percore/percore"
)

// A port is passed on without refusing or resetting a connection. The successor gets copies of all
// sockets, and with them the connections that wait in their backlogs. Between processes the files
// can be passed with exec.Cmd.ExtraFiles, for instance.
func ExampleFileListeners() {
	old, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	waiting, err := net.Dial("tcp", old.Addr().String()) // is not accepted yet
	if err != nil {
		log.Fatal(err)
	}
	defer waiting.Close()

	files, err := old.(*percore.Listener).Files()
	if err != nil {
		log.Fatal(err)
	}
	ln, err := percore.FileListeners(files...)
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	for _, f := range files {
		f.Close() // FileListeners has copies
	}
	go greet(ln)
	old.Close()

	greeting, err := io.ReadAll(waiting)
	fmt.Printf("%s, %v\n", greeting, err)
	// Output: hello from the successor, <nil>
}

// Control is called for each of the listener's sockets, so an option that it sets applies to all
// connections. Connections inherit most options from the socket.
func ExampleListener_SyscallConn() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	raw, err := ln.(*percore.Listener).SyscallConn()
	if err != nil {
		log.Fatal(err)
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		failure = errors.Join(failure, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10))
	})
	fmt.Println(err, failure)
	// Output: <nil> <nil>
}

// greet says hello to every client until ln is closed.
func greet(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "hello from the successor")
		c.Close()
	}
}
