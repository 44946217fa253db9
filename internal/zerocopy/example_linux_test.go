package zerocopy_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"syscall"

	"github.com/percore/percore/internal/zerocopy"
)

// One direction of a proxy: the bytes go from connection to connection in the kernel, if
// they can, and otherwise, or as far as they couldn't, through a buffer.
func ExampleSplice() {
	client, in := pair()
	out, server := pair()
	defer server.Close()
	go func() {
		defer client.Close()
		io.WriteString(client, "from connection to connection")
	}()
	go func() {
		defer in.Close()
		defer out.Close()
		if _, err := forward(out, in); err != nil {
			log.Fatal(err)
		}
	}()
	received, err := io.ReadAll(server)
	fmt.Printf("%s %v\n", received, err)
	// Output: from connection to connection <nil>
}

func forward(to, from *net.TCPConn) (int64, error) {
	dst, err := to.SyscallConn()
	if err != nil {
		return 0, err
	}
	src, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, handled, err := zerocopy.Splice(dst, src, -1)
	if handled && !errors.Is(err, zerocopy.ErrUnfinished) {
		return n, err
	}
	m, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	return n + m, err
}

// Several slices with one system call. Where the socket's buffer is full, Write of the
// RawConn waits for room and calls again, for the slices that are left.
func ExampleWritev() {
	from, to := pair()
	defer to.Close()
	raw, err := from.SyscallConn()
	if err != nil {
		log.Fatal(err)
	}
	slices := [][]byte{[]byte("several "), []byte("slices, "), []byte("one call")}
	var werr error
	err = raw.Write(func(fd uintptr) bool {
		_, werr = zerocopy.Writev(int(fd), &slices)
		return werr != syscall.EAGAIN
	})
	if err := errors.Join(err, werr); err != nil {
		log.Fatal(err)
	}
	from.Close()
	received, err := io.ReadAll(to)
	fmt.Printf("%s %v\n", received, err)
	// Output: several slices, one call <nil>
}

// pair returns the two ends of a connection.
func pair() (dialed, accepted *net.TCPConn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	d, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	a, err := ln.Accept()
	if err != nil {
		log.Fatal(err)
	}
	return d.(*net.TCPConn), a.(*net.TCPConn)
}
