package target

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"syscall"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// server is a server under test, and what else it knows to do.
type server struct {
	serve    func(l net.Listener) error // until it fails
	poll     *longPoll                  // has the handlers that wait; nil: there are none
	fastPath func() uint64              // how many requests httpadapter has served over HTTP/1; may be nil
}

// peers are the servers of RegisterPeer.
var peers = map[string]func(app *App, addr string) error{}

// RegisterPeer makes a server of another library of event handlers known, by the kind of Engine. The
// library opens the listener. Only cmd/percore/peers calls it: percore is built without their modules.
func RegisterPeer(kind string, serve func(app *App, addr string) error) { peers[kind] = serve }

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
		return &server{serve: func(l net.Listener) error { return serve(NewApp(order.App), l.Addr().String()) }}, nil
	case e.Kind == scenario.Reactor:
		return newEventServer(NewApp(order.App))
	case e.Kind == scenario.FastHTTP && order.App == scenario.AppHTTP:
		return &server{serve: fastServer(order)}, nil
	}
	switch order.App {
	case scenario.AppProxyTCP:
		return perConn(func(c net.Conn) error { return proxy(c, order.Behind) }), nil
	case scenario.AppEcho, scenario.AppBroadcast, scenario.AppRESP:
		return perConn(NewApp(order.App).serve), nil
	case scenario.AppBuffers:
		return perConn(func(c net.Conn) error { return burst(c, order.Slices, order.Answer) }), nil
	case scenario.AppGRPC:
		return newGRPCServer(order)
	}
	return newHTTPServer(order)
}

// perConn returns a server that runs handle in a goroutine per connection, until that returns an error,
// and then closes the connection.
func perConn(handle func(net.Conn) error) *server {
	return &server{serve: func(l net.Listener) error {
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
	}}
}

func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
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
