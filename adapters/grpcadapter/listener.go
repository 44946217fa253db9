package grpcadapter

import (
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
)

// serveSockets calls serve for lis, or for each socket of a percore.Listener that has several, and
// returns when all calls have.
func serveSockets(lis net.Listener, serve func(net.Listener) error) error {
	counts.serving.Add(1)
	defer counts.serving.Add(-1)
	l, ok := lis.(*percore.Listener)
	if !ok || connsAreNets {
		return serve(lis)
	}
	var parts []*percore.Listener
	if l.Stats().Sockets > 1 {
		parts, _ = l.PerLoop() // if it fails, serve works without, or returns the error
	}
	if len(parts) == 0 {
		return serve(l)
	}
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- serve(part) }()
	}
	errs := make([]error, 0, len(parts))
	for range parts {
		errs = append(errs, <-ended)
	}
	return outcome(errs)
}

// outcome turns the results of several Serve calls on one server into one. The first call to end
// closes the listener, which ends the others:
//
//	an error of its own       the cause
//	nil                       the server was stopped while it served
//	grpc.ErrServerStopped     it was stopped before this call, but maybe not before all
//	wraps net.ErrClosed       the listener was closed: by the user, or by the cause
func outcome(errs []error) error {
	stopped := false
	for _, err := range errs {
		switch {
		case err == nil:
			stopped = true
		case err != grpc.ErrServerStopped && !errors.Is(err, net.ErrClosed):
			return err
		}
	}
	if stopped {
		return nil
	}
	return errs[0]
}

// serveInner serves past grpc-go's transport.
func serveInner(inner *rpc.Server, lis net.Listener, timeout userTimeout) error {
	return serveSockets(lis, func(l net.Listener) error {
		return inner.Serve(countedListener{l, timeout.ofListener(l)})
	})
}

// countedListener counts the connections of a listener, and sets TCP_USER_TIMEOUT on them.
type countedListener struct {
	net.Listener
	timeout *acceptedTimeout
}

// Accept implements [net.Listener].
func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if _, ok := c.(*percore.Conn); ok && !connsAreNets {
		counts.conns.Add(1)
	} else {
		counts.foreign.Add(1)
	}
	l.timeout.set(c)
	return c, nil
}

// serveByGRPC serves with grpc-go's own transport. It does for percore's connections what grpc-go
// does only for package net's, which it recognizes by their types: it lets them wait without a read
// buffer, and sets TCP_USER_TIMEOUT to grpc-go's default. Connections of other listeners pass
// through unchanged.
func serveByGRPC(srv *grpc.Server, lis net.Listener) error {
	return serveSockets(lis, func(l net.Listener) error {
		if l, ok := l.(*percore.Listener); ok && !connsAreNets {
			return srv.Serve(&readyListener{l, userTimeout(pingTimeout).ofListener(l)})
		}
		return srv.Serve(l)
	})
}

// readyListener accepts readyConns. It has all methods of a percore.Listener, since channelz asks for
// the socket.
type readyListener struct {
	*percore.Listener
	timeout *acceptedTimeout
}

// Accept implements [net.Listener].
func (l *readyListener) Accept() (net.Conn, error) {
	c, err := countedListener{l.Listener, l.timeout}.Accept()
	if own, ok := c.(*percore.Conn); ok {
		return &readyConn{own}, err
	}
	return c, err
}

// readyConn is a connection that grpc-go reads without holding a buffer of 32 KiB while there is nothing
// to read.
type readyConn struct {
	*percore.Conn
}

// ReadOnReady waits until there is something to read, takes a buffer of bufSize bytes from pool, and
// reads into it once. It returns the buffer, which the caller must put back, and how many bytes were
// read, at least one; or no buffer, 0 and the error of Read. grpc-go defines its name and signature:
// it checks whether a connection implements the interface Reader of its package
// internal/transport/readyreader.
func (c *readyConn) ReadOnReady(bufSize int, pool mem.BufferPool) (b *[]byte, n int, err error) {
	n, err = c.ReadReady(
		func() []byte { b = pool.Get(bufSize); return *b },
		func() { pool.Put(b); b = nil },
	)
	return b, n, err
}
