//go:build unix

package percore_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"github.com/percore/percore"
)

// A listener whose sockets a program like github.com/cloudflare/tableflip carries from process to
// process: each of them as a file, under a name of its own. (Its AddListener carries only one.)
func ExampleListener_Files_tableflip() {
	fds := carrier{} // upgrader.Fds
	old, err := listenThrough(fds, "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	waiting, err := net.Dial("tcp", old.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer waiting.Close()

	successor, err := listenThrough(fds, "tcp", "127.0.0.1:0") // in the next process
	if err != nil {
		log.Fatal(err)
	}
	defer successor.Close()
	go greet(successor)
	old.Close()
	greeting, err := io.ReadAll(waiting)
	fmt.Printf("%s, %v\n", greeting, err)
	// Output: hello from the successor, <nil>
}

// fileCarrier has the methods of *tableflip.Fds for files.
type fileCarrier interface {
	AddFile(name string, f *os.File) error // keeps a copy
	File(name string) (*os.File, error)    // returns a copy, or nil
}

// listenThrough returns a listener on the sockets of the predecessor, or a new one if there is none.
func listenThrough(fds fileCarrier, network, address string) (net.Listener, error) {
	name := func(i int) string { return fmt.Sprintf("%s %s #%d", network, address, i) }
	var inherited []*os.File
	for {
		f, err := fds.File(name(len(inherited)))
		if err != nil {
			return nil, err
		}
		if f == nil {
			break
		}
		defer f.Close()
		inherited = append(inherited, f)
	}
	if len(inherited) > 0 {
		return percore.FileListeners(inherited...)
	}
	ln, err := percore.Listen(network, address)
	if err != nil {
		return nil, err
	}
	files, err := ln.(*percore.Listener).Files()
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		if err := fds.AddFile(name(i), f); err != nil {
			return nil, err
		}
		f.Close()
	}
	return ln, nil
}

// carrier stands for *tableflip.Fds.
type carrier map[string]net.Listener

func (c carrier) AddFile(name string, f *os.File) (err error) {
	c[name], err = net.FileListener(f)
	return err
}

func (c carrier) File(name string) (*os.File, error) {
	ln := c[name]
	if ln == nil {
		return nil, nil
	}
	defer ln.Close()
	return ln.(*net.TCPListener).File()
}
