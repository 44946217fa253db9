package loop_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/zerocopy"
)

// The counters of a group and the load of each loop, for a page about the state of the
// program. Place fills one loop before it uses the next; LeastLoaded spreads.
func ExampleGroup_Stats() {
	group, err := loop.NewGroup(loop.Config{Loops: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	for range 2 {
		a, b := socketPair()
		defer newFD(group.Place(), a).Close()
		defer newFD(group.Place(), b).Close()
	}
	a, b := socketPair()
	from, to := newFD(group.LeastLoaded(), a), newFD(group.LeastLoaded(), b)
	defer from.Close()
	defer to.Close()
	from.Write([]byte("hello"))
	to.Read(make([]byte, 5))

	stats := group.Stats()
	fmt.Println("descriptors:", stats.Descriptors)
	for i := range group.Len() {
		fmt.Printf("on loop %d:   %d\n", i, group.Loop(i).Descriptors())
	}
	fmt.Println("events:     ", stats.Events, "and a wake-up or more:", stats.Wakeups > 0)
	// Output:
	// descriptors: 6
	// on loop 0:   4
	// on loop 1:   2
	// events:      1 and a wake-up or more: true
}

// A part of a program that gets a group from outside keeps it with Retain, whatever its
// maker does, and lets go with Release. Stopped tells when nothing is left of the loops.
func ExampleGroup_Retain() {
	group, err := loop.NewGroup(loop.Config{Loops: 1})
	if err != nil {
		log.Fatal(err)
	}
	if !group.Retain() {
		log.Fatal(loop.ErrStopped)
	}
	group.Close() // by its maker
	a, b := socketPair()
	fds := []*loop.FD{newFD(group.Place(), a), newFD(group.Place(), b)}
	group.Release()
	for _, fd := range fds {
		fd.Close() // with the last one the group ends
	}
	<-group.Stopped()
	fmt.Println("ended; Retain:", group.Retain())
	// Output: ended; Retain: false
}

// A socket that percore.Listen doesn't make, served as a net.Conn is: by calls that
// block, with a deadline. Here it is one end of a socketpair(2).
func ExampleLoop_NewFD() {
	group, err := loop.NewGroup(loop.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()

	// echo serves a connection until its peer ends it, or is silent for too long.
	echo := func(fd *loop.FD, patience time.Duration) error {
		defer fd.Close()
		p := make([]byte, 4096)
		for {
			if err := fd.SetDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
			n, err := fd.Read(p)
			if err != nil {
				return err // bare: io.EOF, os.ErrDeadlineExceeded, loop.ErrClosed or a syscall.Errno
			}
			if _, err := fd.Write(p[:n]); err != nil {
				return err
			}
		}
	}

	client, server := connect(group)
	served := make(chan error)
	go func() { served <- echo(server, time.Minute) }()
	client.Write([]byte("hello"))
	answer := make([]byte, 5)
	for n := 0; n < len(answer); {
		m, err := client.Read(answer[n:])
		if err != nil {
			log.Fatal(err)
		}
		n += m
	}
	client.Close()
	fmt.Printf("%s, %v\n", answer, <-served)

	silent, server := connect(group)
	defer silent.Close()
	fmt.Println(errors.Is(echo(server, 10*time.Millisecond), os.ErrDeadlineExceeded))
	// Output:
	// hello, EOF
	// true
}

// A connection that waits holds neither a goroutine nor a buffer. The callback runs on
// the loop, so it leaves the reading to a goroutine.
func ExampleFD_OnReadable() {
	group, err := loop.NewGroup(loop.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	client, server := connect(group)
	defer server.Close()

	server.SetReadDeadline(time.Now().Add(time.Minute))
	done := make(chan struct{})
	read := func() {
		defer close(done)
		p := make([]byte, 512)
		n, err := server.Read(p) // waits if the callback was spurious; see TryRead
		fmt.Printf("%s, %v\n", p[:n], err)
	}
	// An error that the callback is told, when the deadline has passed or server is
	// closed, comes out of Read, too.
	if err := server.OnReadable(func(error) { go read() }); err != nil {
		log.Fatal(err)
	}
	client.Write([]byte("news"))
	<-done
	client.Close()
	// Output: news, <nil>
}

// A session is a connection that is served by callbacks: with a handler instead of a function
// arming the next callback is cheap.
type session struct {
	fd       *loop.FD
	received []byte
	done     chan error
}

// OnReadable runs on the loop and must not block.
func (s *session) OnReadable(err error) {
	if err != nil { // the read deadline has passed, or the descriptor was closed
		s.done <- err
		return
	}
	go s.read()
}

// read takes what there is, and waits for more without a goroutine.
func (s *session) read() {
	p := make([]byte, 512)
	for {
		n, err := s.fd.TryRead(p)
		s.received = append(s.received, p[:n]...)
		if n == 0 && err == nil {
			err = s.fd.NotifyReadable(s) // nothing is left; s is the loop's from here on
			if err == nil {
				return
			}
		}
		if err != nil {
			s.done <- err
			return
		}
	}
}

// A connection that is served by callbacks from beginning to end.
func ExampleFD_NotifyReadable() {
	group, err := loop.NewGroup(loop.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	client, server := connect(group)
	defer server.Close()
	s := &session{fd: server, done: make(chan error, 1)}
	if err := server.NotifyReadable(s); err != nil {
		log.Fatal(err)
	}
	for _, message := range []string{"one, ", "two, ", "three"} {
		client.Write([]byte(message))
	}
	client.Close()
	err = <-s.done
	fmt.Printf("%s, then %v\n", s.received, err)
	// Output: one, two, three, then EOF
}

// The program has made the listening socket itself, of a family that package net does not
// know, say. A real server calls Wait again and again, from as many goroutines as it likes.
func ExampleAcceptPoller() {
	group, err := loop.NewGroup(loop.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	listening, address := listenRaw()
	defer unix.Close(listening) // after the poller
	poller, err := loop.NewAcceptPoller([]int{listening})
	if err != nil {
		log.Fatal(err)
	}
	defer poller.Close()

	go func() {
		client, err := net.Dial("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		io.WriteString(client, "hello")
	}()

	var accepted int
	var failure error
	err = poller.Wait(nil, func(int, loop.Readiness) (done bool) {
		accepted, _, failure = unix.Accept4(listening, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch failure {
		case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
			return false // the client has gone, or another accept was faster
		}
		return true
	})
	if err := errors.Join(err, failure); err != nil {
		log.Fatal(err)
	}
	fd, err := group.Place().NewFD(accepted, loop.TCP)
	if err != nil {
		unix.Close(accepted) // if NewFD fails the descriptor stays the caller's
		log.Fatal(err)
	}
	defer fd.Close()
	p := make([]byte, 5)
	n, err := fd.Read(p)
	fmt.Printf("%s, %v\n", p[:n], err)
	// Output: hello, <nil>
}

// The memory to read into is found when there is something to read: connections that
// wait hold none.
func ExampleFD_ReadReady() {
	group, err := loop.NewGroup(loop.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	client, server := connect(group)
	defer server.Close()
	client.Write([]byte("hello"))
	client.Close()

	for {
		var b *pool.Buffer
		n, err := server.ReadReady(
			func() []byte { b = pool.Get(4096); return b.Bytes() },
			func() { b.Release() },
		)
		if n == 0 {
			fmt.Println(err)
			break
		}
		fmt.Printf("%s\n", b.Bytes()[:n])
		b.Release()
	}
	// Output:
	// hello
	// EOF
}

// A file is sent by the kernel, without passing through the process. A Stream is an end
// that package zerocopy need not ask the kernel about.
func ExampleFD_Stream() {
	group, err := loop.NewGroup(loop.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	client, server := connect(group)
	defer client.Close()
	file, err := os.CreateTemp("", "page")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	file.WriteString("<h1>hello</h1>")
	file.Seek(0, io.SeekStart)
	src, err := file.SyscallConn()
	if err != nil {
		log.Fatal(err)
	}
	n, handled, err := zerocopy.SendFile(server.Stream(), src, -1)
	if !handled {
		log.Fatal(err) // nothing was sent: read the file and write it
	}
	server.Close()
	p := make([]byte, 64)
	m, _ := client.Read(p)
	fmt.Printf("%d bytes, %v: %s\n", n, err, p[:m])
	// Output: 14 bytes, <nil>: <h1>hello</h1>
}

// A socket option. RawControl is for functions that may do more to the socket, and
// makes reads of it ask the kernel more often if they have.
func ExampleFD_Control() {
	group, err := loop.NewGroup(loop.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	client, server := connect(group)
	defer client.Close()
	defer server.Close()
	err = server.Control(func(fd int) syscall.Errno {
		errno, _ := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10).(syscall.Errno)
		return errno
	})
	fmt.Println(err)
	// Output: <nil>
}

// socketPair returns two connected sockets, as NewFD wants them: non-blocking and
// close-on-exec.
func socketPair() (a, b int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		log.Fatal(err)
	}
	return pair[0], pair[1]
}

// newFD registers a unix socket with l.
func newFD(l *loop.Loop, socket int) *loop.FD {
	fd, err := l.NewFD(socket, loop.Plain)
	if err != nil {
		log.Fatal(err)
	}
	return fd
}

// connect returns both ends of a connection.
func connect(group *loop.Group) (client, server *loop.FD) {
	a, b := socketPair()
	return newFD(group.Place(), a), newFD(group.Place(), b)
}

// listenRaw returns a socket that listens on a free port, and its address.
func listenRaw() (socket int, address string) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		log.Fatal(err)
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		log.Fatal(err)
	}
	if err := unix.Listen(socket, 16); err != nil {
		log.Fatal(err)
	}
	bound, err := unix.Getsockname(socket)
	if err != nil {
		log.Fatal(err)
	}
	return socket, fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
}
