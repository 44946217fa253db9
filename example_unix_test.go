//go:build unix

package percore_test

import (
	"fmt"
	"io"
	"log"
	"net"

	"github.com/percore/percore"
)

// A port changes hands without a connection being refused or reset: the successor gets
// copies of all sockets, and with them the connections that wait in their backlogs.
// Between processes the files travel by exec.Cmd.ExtraFiles, say.
func ExampleFileListener() {
	old, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	waiting, err := net.Dial("tcp", old.Addr().String()) // it is not accepted yet
	if err != nil {
		log.Fatal(err)
	}
	defer waiting.Close()

	files, err := old.(*percore.Listener).Files()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		ln, err := percore.FileListener(f)
		if err != nil {
			log.Fatal(err)
		}
		defer ln.Close()
		f.Close()
		go greet(ln)
	}
	old.Close()

	greeting, err := io.ReadAll(waiting)
	fmt.Printf("%s, %v\n", greeting, err)
	// Output: hello from the successor, <nil>
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
