//go:build unix

package percore_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/percore/percore"
)

// A service that systemd starts with its listening sockets open: inherited finds
// them, as sd_listen_fds(3) does, and those of one address make one listener.
func ExampleFileListeners_systemd() {
	first := activate() // done by systemd; a service that it starts gets 3 here
	files, err := inherited(first)
	if err != nil || len(files) == 0 {
		log.Fatal("no sockets from systemd: ", err)
	}
	ln, err := percore.FileListeners(files...)
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	for _, f := range files {
		f.Close()
	}
	go greet(ln)

	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	greeting, err := io.ReadAll(client)
	fmt.Printf("%s, %v\n", greeting, err)
	// Output: hello from the successor, <nil>
}

// inherited returns the sockets that the service manager has passed to this process. Their
// descriptors begin at first.
func inherited(first int) ([]*os.File, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil // none, or for another process
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil {
		return nil, fmt.Errorf("LISTEN_FDS: %w", err)
	}
	// Child processes must not mistake the sockets for their own.
	os.Unsetenv("LISTEN_PID")
	os.Unsetenv("LISTEN_FDS")
	var files []*os.File
	for fd := first; fd < first+n; fd++ {
		syscall.CloseOnExec(fd)
		files = append(files, os.NewFile(uintptr(fd), "LISTEN_FD_"+strconv.Itoa(fd)))
	}
	return files, nil
}

// activate opens a listening socket, announces it in the environment, and returns the descriptor.
func activate() int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	socket, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	os.Setenv("LISTEN_FDS", "1")
	return socket
}
