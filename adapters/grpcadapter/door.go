package grpcadapter

import (
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/percore/percore/adapters/grpcadapter/internal/innards"
	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
)

// A door is a listener without connections that a grpc.Server serves, so that its Stop and
// GracefulStop reach the inner server, whose calls it doesn't know. It is open as long as the inner
// server has connections or calls.
//
//	the grpc.Server            the door                               the inner server
//	Serve: Accept              opens; GracefulStop waits for it
//	Stop: Close                Accept ends when that is done          CloseConns, then Stop
//	GracefulStop: Close        Accept ends at once                    GracefulStop
//	  Stop, meanwhile          Serve ends before the calls do         Stop
//	—                          closed as unused; Serve ends
//
// GracefulStop waits for the group of the server's handlers, to which the door adds one. It can't
// wait in Accept: Stop would wait there too, and could not cut the wait short.
type door struct {
	inner    *rpc.Server
	handlers *sync.WaitGroup // of the grpc.Server

	opened chan struct{} // closed by the first Accept
	closed chan struct{} // closed by close
	ended  chan struct{} // closed when the grpc.Server's Serve has returned
	once   sync.Once     // of opened
	kind   closing       // written before closed is closed
	first  sync.Once     // of closed
}

// closing is why a door is closed.
type closing int

const (
	unused closing = iota
	stop
	gracefulStop
)

// openDoor makes srv serve a door. It returns nil if srv has been stopped.
func openDoor(srv *grpc.Server, inner *rpc.Server, in *innards.Server) *door {
	d := &door{
		inner: inner, handlers: in.Handlers(),
		opened: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	go d.serve(srv)
	select {
	case <-d.opened:
		return d
	case <-d.ended:
		return nil
	}
}

// serve ends when srv's Stop or GracefulStop has, or when the door is unused.
func (d *door) serve(srv *grpc.Server) {
	defer close(d.ended)
	_ = srv.Serve(d)
	select {
	case <-d.closed:
		if d.kind == gracefulStop {
			d.inner.Stop() // it has ended by itself, or by srv.Stop
		}
	default: // srv was stopped before
	}
}

// Accept never returns a connection; it returns net.ErrClosed once the door is closed.
func (d *door) Accept() (net.Conn, error) {
	d.once.Do(func() {
		d.handlers.Add(1)
		close(d.opened)
	})
	<-d.closed
	switch d.kind {
	case unused:
		d.handlers.Done()
	case stop:
		d.inner.CloseConns()
		go func() {
			d.inner.Stop()
			d.handlers.Done()
		}()
	case gracefulStop:
		go func() {
			d.inner.GracefulStop()
			d.handlers.Done()
		}()
	}
	return nil, net.ErrClosed
}

// Close is called by srv, which holds its lock.
func (d *door) Close() error {
	stopping, graceful := innards.Stopping()
	switch {
	case !stopping: // Serve has ended
	case graceful:
		d.close(gracefulStop)
	default:
		d.close(stop)
	}
	return nil
}

func (d *door) close(kind closing) {
	d.first.Do(func() {
		d.kind = kind
		close(d.closed)
	})
}

// Addr implements [net.Listener].
func (d *door) Addr() net.Addr { return doorAddr{} }

// doorAddr is what channelz shows.
type doorAddr struct{}

func (doorAddr) Network() string { return "percore" }
func (doorAddr) String() string  { return "percore" }
