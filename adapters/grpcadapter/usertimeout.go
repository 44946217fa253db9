package grpcadapter

import (
	"math"
	"net"
	"syscall"
	"time"

	"github.com/percore/percore"
)

// userTimeout is the TCP_USER_TIMEOUT of connections (tcp(7)): data that is not acknowledged in time
// ends them. grpc-go sets it on package net's. 0: left alone.
type userTimeout time.Duration

const (
	never       = time.Duration(math.MaxInt64) // grpc-go's infinity
	pingTimeout = 20 * time.Second             // grpc-go's default, at both ends
)

// userTimeoutOf returns the value that grpc-go sets for the keep-alive parameters of a server or client
// (NewServerTransport, NewHTTP2Client in its internal/transport).
func userTimeoutOf(every, timeout time.Duration) userTimeout {
	switch {
	case every == never:
		return 0
	case timeout == 0:
		return userTimeout(pingTimeout)
	}
	return userTimeout(timeout)
}

// inherited sets the option on l's sockets, from which connections inherit it without a system call, and
// returns what remains to be set on each connection.
func (t userTimeout) inherited(l *percore.Listener) userTimeout {
	if _, isTCP := l.Addr().(*net.TCPAddr); isTCP && t > 0 && setUserTimeout(l, time.Duration(t)) == nil {
		return 0
	}
	return t
}

// set sets the option on a connection, which is as good without if that fails.
func (t userTimeout) set(c net.Conn) {
	socket, ok := c.(syscall.Conn)
	if !ok || t <= 0 {
		return // without the address, which costs a system call
	}
	if _, isTCP := c.RemoteAddr().(*net.TCPAddr); isTCP {
		_ = setUserTimeout(socket, time.Duration(t))
	}
}
