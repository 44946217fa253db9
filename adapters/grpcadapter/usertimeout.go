package grpcadapter

import (
	"context"
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore"
)

// userTimeout is the TCP_USER_TIMEOUT of connections (tcp(7)): they end if data is not acknowledged
// in time. grpc-go sets it on package net's connections. 0: left alone.
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

// set sets the option on a connection, which works without it if that fails.
func (t userTimeout) set(c net.Conn) {
	socket, ok := c.(syscall.Conn)
	if !ok || t <= 0 {
		return // without the address, which costs a system call
	}
	if _, isTCP := c.RemoteAddr().(*net.TCPAddr); isTCP {
		_ = setUserTimeout(socket, time.Duration(t))
	}
}

// dial returns a dial that sets the option on its connections, after they are connected: set
// earlier, it would also limit the time for connecting.
func (t userTimeout) dial(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err == nil {
			t.set(c)
		}
		return c, err
	}
}

// acceptedTimeout is the userTimeout of a listener's connections. Connections of a percore.Listener
// inherit it from its sockets, without a system call, unless the kernel connected them before it was
// set: when a server starts, as after a restart, clients may already be waiting.
type acceptedTimeout struct {
	userTimeout
	left atomic.Int64 // at most how many of the next connections don't have it
}

// ofListener sets the option on l's sockets if it is a percore.Listener.
func (t userTimeout) ofListener(l net.Listener) *acceptedTimeout {
	a := &acceptedTimeout{userTimeout: t}
	a.left.Store(math.MaxInt64)
	if l, ok := l.(*percore.Listener); ok && t > 0 {
		if _, isTCP := l.Addr().(*net.TCPAddr); isTCP && setUserTimeout(l, time.Duration(t)) == nil {
			a.left.Store(acceptQueue(l)) // now: who connects from here on has it
		}
	}
	return a
}

// set sets the option on a connection that was accepted, unless it has it.
func (t *acceptedTimeout) set(c net.Conn) {
	if t.left.Load() > 0 {
		t.left.Add(-1)
		t.userTimeout.set(c)
	}
}
