package probe

import (
	"errors"
	"net"
)

// Start calls serve, which is one of net/http's methods of that name, with a listener that fails at
// once. It returns the reason why net/http refuses to serve: the server is shut down, or its
// configuration is wrong. Otherwise it returns nil.
func Start(serve func(net.Listener) error) error {
	if err := serve(startListener{}); err != errStart {
		return err
	}
	return nil
}

// IsStart reports whether l is the listener of [Start], or a tls.Listener around it.
func IsStart(l net.Listener) bool { return l.Addr() == addr{} }

var errStart = errors.New("httpadapter: nothing to accept")

// startListener is a listener that fails at once.
type startListener struct{}

func (startListener) Accept() (net.Conn, error) { return nil, errStart }
func (startListener) Close() error              { return nil }
func (startListener) Addr() net.Addr            { return addr{} }

// addr is the address of everything that is in memory.
type addr struct{}

func (addr) Network() string { return "probe" }
func (addr) String() string  { return "probe" }
