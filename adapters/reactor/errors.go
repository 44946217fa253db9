package reactor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

var (
	// ErrServerClosed is the error of Serve and Attach on a server that was closed or is shutting down,
	// and the reason why its connections are closed. It wraps [net.ErrClosed].
	ErrServerClosed = fmt.Errorf("reactor: the server is closed: %w", net.ErrClosed)

	// ErrReadBufferFull is the reason for closing a connection whose Data used none of the bytes when no
	// more could be kept: see [Config].ReadBufferMax.
	ErrReadBufferFull = errors.New("reactor: a message is longer than ReadBufferMax; raise that, or have Data use a part")

	// ErrWriteBufferFull is the error of a Write after which more than WriteHardLimit bytes would wait
	// for the peer. Unless the handler is a [WritableHandler], it is also the reason for closing the
	// connection. Nothing of the Write was taken. Broadcast fails with it, too, when the loops have too
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

// errNil is the error of a call that was passed a nil.
func errNil(call, what string) error {
	return fmt.Errorf("reactor: %s was called with a nil %s: pass one", call, what)
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
