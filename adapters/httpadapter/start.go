package httpadapter

import (
	"errors"
	"net"
)

// startServe calls serve, a method of the http.Server's, with a listener that fails at once. It returns
// why net/http refuses to serve: the server is shut down, or its configuration is wrong. Otherwise it
// returns nil.
func startServe(serve func(net.Listener) error) error {
	if err := serve(startListener{}); err != errStart {
		return err
	}
	return nil
}

// isStart reports whether l is the listener of startServe, or a tls.Listener around it.
func isStart(l net.Listener) bool { return l.Addr() == startAddr{} }

var errStart = errors.New("httpadapter: nothing to accept")

// startListener is a listener that fails at once.
type startListener struct{}

func (startListener) Accept() (net.Conn, error) { return nil, errStart }
func (startListener) Close() error              { return nil }
func (startListener) Addr() net.Addr            { return startAddr{} }

type startAddr struct{}

func (startAddr) Network() string { return "start" }
func (startAddr) String() string  { return "start" }
