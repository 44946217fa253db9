package target

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"syscall"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// server is a server under test, and what else it knows to do.
type server struct {
	serve    serveFunc
	poll     *longPoll     // has the handlers that wait; nil: there are none
	fastPath func() uint64 // how many requests httpadapter has served over HTTP/1; may be nil
	foreign  *foreign      // serves in place of this process; nil: this process does
}

// serveFunc serves the connections of l, or closes it and serves its address, calls ready when it
// accepts connections, and returns only if it fails.
type serveFunc func(l net.Listener, ready func()) error

// peers are the servers of RegisterPeer.
var peers = map[string]func(app string, l net.Listener, ready func()) error{}

// RegisterPeer makes a server of another library of event handlers known, by the kind of Engine. This
// program has none, so that who builds it doesn't need their modules; see cmd/percore/peers.
func RegisterPeer(kind string, serve func(app string, l net.Listener, ready func()) error) {
	peers[kind] = serve
}

// newServer returns the server that order names. It doesn't depend on the listener.
func newServer(order *scenario.Order) (*server, error) {
	switch e := order.Engine; {
	case !e.Serves(&order.Scenario):
		return nil, fmt.Errorf("there is no server %q of the kind %q", order.App, e.Kind)
	case e.Peer():
		serve := peers[e.Kind]
		if serve == nil {
			return nil, fmt.Errorf("this program is built without %s", e.Kind)
		}
		return &server{serve: func(l net.Listener, ready func()) error { return serve(order.App, l, ready) }}, nil
	case e.Kind == scenario.Nginx:
		return newNginx(order)
	case e.Kind == scenario.Nghttpd:
		return newNghttpd(order)
	case e.Kind == scenario.Reactor:
		return newEventServer(order.App)
	case e.Kind == scenario.FastHTTP && order.App == scenario.AppHTTP:
		return serving(fastServer(order)), nil
	}
	switch order.App {
	case scenario.AppProxyTCP:
		return perConn(func(c net.Conn) error { return proxy(c, order.Behind) }), nil
	case scenario.AppEcho:
		return perConn(echo), nil
	case scenario.AppBroadcast:
		return perConn((&audience{conns: make(map[net.Conn]bool)}).serve), nil
	case scenario.AppRESP:
		store := NewStore()
		return perConn(func(c net.Conn) error { return answerCommands(c, store) }), nil
	case scenario.AppBuffers:
		return perConn(func(c net.Conn) error { return burst(c, order.Slices, order.Answer) }), nil
	case scenario.AppGRPC:
		return newGRPCServer(order)
	}
	return newHTTPServer(order)
}

// serving returns a server that accepts connections as soon as serve is called.
func serving(serve func(l net.Listener) error) *server {
	return &server{serve: func(l net.Listener, ready func()) error {
		ready()
		return serve(l)
	}}
}

// perConn returns a server that runs handle in a goroutine per connection, until that returns an error,
// and then closes the connection.
func perConn(handle func(net.Conn) error) *server {
	return serving(func(l net.Listener) error {
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

// gone reports whether err only means that the client has left.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// echo sends back everything that it reads.
func echo(c net.Conn) error {
	return eachRead(c, func(p []byte) error {
		_, err := c.Write(p)
		return err
	})
}

// eachRead calls f with what each read of c has brought.
func eachRead(c net.Conn, f func(p []byte) error) error {
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if err := f(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// burst answers each byte with slices of size bytes. It calls net.Buffers.WriteTo once for each answer.
func burst(c net.Conn, slices, size int) error {
	request, slice := make([]byte, 1), make([]byte, size)
	answer := make(net.Buffers, slices)
	for {
		if _, err := c.Read(request); err != nil {
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

// audience is the connections of AppBroadcast.
type audience struct {
	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
}

// serve sends what comes on c to all connections. A write blocks if a client doesn't read, which those
// of the benchmark do.
func (a *audience) serve(c net.Conn) error {
	a.mu.Lock()
	a.conns[c] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.conns, c)
	}()
	return eachRead(c, func(p []byte) error {
		if len(p) == scenario.Greeting {
			_, err := c.Write(p)
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for c := range a.conns {
			c.Write(p) // if this fails, the next read of c does
		}
		return nil
	})
}
