package target

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"syscall"

	"github.com/percore/percore/cmd/percore/internal/bench/kv"
)

// server serves the connections of a listener. Serve returns only if it fails: a target ends
// together with its process.
type server interface {
	Serve(l net.Listener) error
}

// A foreignServer serves in separate processes.
type foreignServer interface {
	server
	usage() (Usage, error)
	memory() (Memory, error)
}

// A lateServer doesn't accept connections as soon as Serve is called.
type lateServer interface {
	server
	ready() <-chan struct{} // closed when it does
}

// serverFunc is a function that implements server.
type serverFunc func(l net.Listener) error

func (f serverFunc) Serve(l net.Listener) error { return f(l) }

// newServer returns the server that spec names. It doesn't depend on the engine, except for the
// adapter and for the package that serves HTTP or event handlers.
func newServer(spec Spec) (server, error) {
	if !spec.Exists() {
		return nil, fmt.Errorf("there is no server %q on this engine", spec.App)
	}
	if spec.Engine.FastHTTP && spec.App != AppCaller {
		return newFastHTTPServer(spec), nil
	}
	if spec.Engine.Nginx {
		return newNginxServer(spec)
	}
	if spec.Engine.Nghttpd {
		return newNghttpdServer(spec)
	}
	if spec.Engine.Reactor {
		return newEventServer(spec.App)
	}
	if spec.Engine.Peer != "" {
		return newPeerServer(spec)
	}
	if spec.Engine.Bare && spec.App == AppHTTP {
		return perConn(answerBare), nil
	}
	if spec.overHTTP() {
		return newHTTPServer(spec)
	}
	switch spec.App {
	case AppProxyTCP:
		return perConn(func(c net.Conn) error { return proxy(c, spec.Backend) }), nil
	case AppEcho:
		return perConn(echo), nil
	case AppBroadcast:
		a := &audience{conns: make(map[net.Conn]bool)}
		return perConn(a.serve), nil
	case AppRESP:
		store := kv.New()
		return perConn(func(c net.Conn) error { return answerCommands(c, store) }), nil
	case AppBuffers:
		return perConn(func(c net.Conn) error { return burst(c, spec.Slices, spec.SliceBytes) }), nil
	case AppGRPC:
		return newGRPCServer(spec)
	}
	return nil, fmt.Errorf("unknown server %q", spec.App)
}

// perConn returns a server that runs handle in a goroutine per connection, and then closes the
// connection.
func perConn(handle func(net.Conn) error) server {
	return serverFunc(func(l net.Listener) error {
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			go func() {
				defer c.Close()
				if err := handle(c); err != nil && !gone(err) {
					log.Printf("connection: %v", err)
				}
			}()
		}
	})
}

// gone reports whether err only means that the client left in the middle, as the load generator
// does when it is stopped.
func gone(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// echo sends back everything that it reads, until the client is done.
func echo(c net.Conn) error {
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if _, err := c.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// burst answers each byte that it reads with slices of size bytes, until the client is done. It
// calls net.Buffers.WriteTo once for each answer.
func burst(c net.Conn, slices, size int) error {
	request, slice := make([]byte, 1), make([]byte, size)
	answer := make(net.Buffers, slices)
	for {
		if _, err := c.Read(request); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for i := range answer {
			answer[i] = slice
		}
		rest := answer // WriteTo removes the slices it has written
		if _, err := rest.WriteTo(c); err != nil {
			return err
		}
	}
}

// proxy connects to backend and copies both ways until either side is done.
func proxy(c net.Conn, backend string) error {
	b, err := net.Dial("tcp", backend)
	if err != nil {
		return err
	}
	defer b.Close()
	there := make(chan error, 1)
	go func() {
		_, err := io.Copy(b, c)
		closeWrite(b)
		there <- err
	}()
	_, back := io.Copy(c, b)
	closeWrite(c)
	return errors.Join(<-there, back)
}

// closeWrite passes an end of stream on to a connection.
func closeWrite(c net.Conn) {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
}
