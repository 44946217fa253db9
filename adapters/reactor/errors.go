package reactor

import (
	"errors"
	"fmt"
)

var (
	// ErrServerClosed is the error of Serve and Attach on a server that was closed or is shutting
	// down, and the reason that its connections are closed for.
	ErrServerClosed = errors.New("reactor: the server is closed")

	// ErrReadBufferFull is the reason for closing a connection on which Data used nothing of as many
	// bytes as are kept: see the option ReadBufferMax.
	ErrReadBufferFull = errors.New("reactor: a message is longer than ReadBufferMax; raise that, or have Data use a part")

	// ErrWriteBufferFull is the error of a Write that would have more bytes wait for the peer than
	// WriteLimit. Nothing of it was taken, and the connection is as it was.
	ErrWriteBufferFull = errors.New("reactor: the peer does not read, and WriteLimit bytes wait for it already")
)

// PanicError is the reason for closing a connection whose handler has panicked.
type PanicError struct {
	Value any // of the panic; nil if the handler ended its goroutine (runtime.Goexit)
}

// Error names the value.
func (e *PanicError) Error() string {
	return fmt.Sprintf("reactor: the handler panicked: %v", e.Value)
}
