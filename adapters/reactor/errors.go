package reactor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

var (
	// ErrServerClosed is the error of Serve and Attach on a server that was closed or is shutting
	// down, and the reason that its connections are closed for. It wraps [net.ErrClosed].
	ErrServerClosed = fmt.Errorf("reactor: the server is closed: %w", net.ErrClosed)

	// ErrReadBufferFull is the reason for closing a connection on which Data used nothing of as many
	// bytes as are kept: see [Config].ReadBufferMax.
	ErrReadBufferFull = errors.New("reactor: a message is longer than ReadBufferMax; raise that, or have Data use a part")

	// ErrWriteBufferFull is the error of a Write that would have more bytes wait for the peer than
	// WriteHardLimit, and the reason for closing its connection, unless the handler is a [WritableHandler].
	// Nothing of the Write was taken. It is also the error of a Broadcast for which the loops have too
	// much to do.
	ErrWriteBufferFull = errors.New("reactor: the write was refused, since more than WriteHardLimit bytes would wait to be sent; write less at a time, wait for Writable, or raise that")
)

// PanicError is the reason for closing a connection whose handler has panicked.
type PanicError struct {
	Value any // of the panic; nil if the handler ended its goroutine (runtime.Goexit)
}

// Error names the value.
func (e *PanicError) Error() string {
	return fmt.Sprintf("reactor: the handler panicked: %v", e.Value)
}

// opError returns an error as a net.Conn has it. An errno gets the name of the system call, which is op.
func (s *sock) opError(op string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, errno)
	}
	local := s.conn.LocalAddr()
	network := "tcp"
	if local != nil {
		network = local.Network()
	}
	return &net.OpError{Op: op, Net: network, Source: local, Addr: s.conn.RemoteAddr(), Err: err}
}
