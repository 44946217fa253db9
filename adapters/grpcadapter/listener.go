package grpcadapter

import (
	"errors"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/percore/percore"
)

// ServeOption is an option of [Serve]: [KeepaliveParams].
type ServeOption interface{ applyToListener(*settings) }

// settings are the same for all connections of a listener or dialer.
type settings struct {
	userTimeout time.Duration // TCP_USER_TIMEOUT; negative: left alone
}

// settingsOf returns what the options say.
func settingsOf(opts []ServeOption) settings {
	s := settings{userTimeout: pingTimeout}
	for i, opt := range opts {
		refuseNilOption(opt == nil, "Serve's options", i)
		opt.applyToListener(&s)
	}
	return s
}

// The listeners that wrapListener returns are of three kinds: percore's, with all its methods; one of
// unknown origin; or one of unknown origin that gives access to its socket, which channelz needs.
type (
	percoreListener struct {
		*percore.Listener
		settings settings
	}
	foreignListener struct {
		net.Listener
		settings settings
	}
	foreignSocketListener struct {
		foreignListener
		syscall.Conn
	}
)

// wrapListener returns a listener whose connections are [Conn] where l returns a *percore.Conn.
// Other connections pass through unchanged, and so does a listener whose connections are certainly
// package net's.
//
// TCP_USER_TIMEOUT is set on the sockets of a *percore.Listener: connections inherit it from them
// without a system call, and the sockets keep it. On a *percore.Conn from any other listener it is
// set one by one.
func wrapListener(l net.Listener, s settings) net.Listener {
	switch l := l.(type) {
	case *percore.Listener:
		if connsAreNets {
			return l
		}
		return &percoreListener{l, s.inherited(l)}
	case *net.TCPListener, *net.UnixListener:
		return l
	}
	foreign := foreignListener{l, s}
	if socket, ok := l.(syscall.Conn); ok {
		return &foreignSocketListener{foreign, socket}
	}
	return &foreign
}

// Accept waits for the next connection, a *[Conn].
func (l *percoreListener) Accept() (net.Conn, error) { return l.settings.accept(l.Listener) }

// Accept waits for the next connection, a *[Conn] if it is percore's.
func (l *foreignListener) Accept() (net.Conn, error) { return l.settings.accept(l.Listener) }

// inherited sets options on l's sockets for connections to inherit, and returns what remains to be
// set on each connection.
func (s settings) inherited(l *percore.Listener) settings {
	if _, isTCP := l.Addr().(*net.TCPAddr); isTCP && s.userTimeout >= 0 && setUserTimeout(l, s.userTimeout) == nil {
		s.userTimeout = leaveUnchanged
	}
	return s
}

func (s settings) accept(l net.Listener) (net.Conn, error) {
	c, err := l.Accept()
	if err != nil {
		return nil, err
	}
	return s.wrap(c), nil
}

// wrap prepares a new connection for grpc-go.
func (s settings) wrap(c net.Conn) net.Conn {
	pc, ok := c.(*percore.Conn)
	if !ok || connsAreNets {
		counts.foreign.Add(1)
		return c
	}
	counts.conns.Add(1)
	// Check the address, which accept4 has returned, because unix sockets have no such option. If
	// the kernel refuses, keep the connection anyway. A dialed connection gets the option here,
	// when it is made, as grpc-go does it. Set earlier, it would also limit the time for connecting
	// (Linux 6.18: with 300 ms, connect fails after a lost packet).
	if _, isTCP := pc.RemoteAddr().(*net.TCPAddr); isTCP && s.userTimeout >= 0 {
		_ = setUserTimeout(pc, s.userTimeout)
	}
	return &Conn{pc}
}

// ListenerServer is a server that [Serve] can run: a *grpc.Server, or an *xds.GRPCServer.
type ListenerServer interface {
	Serve(net.Listener) error
}

// Serve does what srv.Serve(lis) does on percore's connections, with grpc-go's own transport. It
// does for percore's what grpc-go does only for package net's (see [Conn]), and it accepts in one
// goroutine per socket instead of one for all. There is still one server: Stop and GracefulStop end all
// of it. Serve returns the result of srv.Serve once everything has ended. The listener is closed then.
//
// On accepted TCP connections TCP_USER_TIMEOUT is set to the value that grpc-go uses with the server's
// default parameters, 20 seconds; see [KeepaliveParams]. A listener that wraps percore's, or a unix
// socket, has one place to accept from. Connections that are not percore's pass through unchanged.
func Serve(srv ListenerServer, lis net.Listener, opts ...ServeOption) error {
	switch {
	case isNilServer(srv):
		return errors.New("grpcadapter: Serve was called with a nil server: pass the result of grpc.NewServer")
	case isNilListener(lis):
		return errNilListener
	}
	lis = wrapListener(lis, settingsOf(opts))
	counts.serving.Add(1)
	defer counts.serving.Add(-1)
	parts := split(lis)
	if len(parts) < 2 {
		return srv.Serve(lis)
	}
	return serveParts(srv.Serve, parts)
}

// serveParts calls serve for each of the parts, and returns when all calls have.
func serveParts[L net.Listener](serve func(net.Listener) error, parts []L) error {
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

// split returns a listener per socket. It returns nil if there is nothing to gain, or if it fails:
// then srv.Serve returns the error, or works without.
func split(lis net.Listener) []net.Listener {
	l, ok := lis.(*percoreListener)
	if !ok || l.Stats().Sockets < 2 {
		return nil
	}
	subs, err := l.PerLoop()
	if err != nil {
		return nil
	}
	parts := make([]net.Listener, 0, len(subs))
	for _, sub := range subs {
		parts = append(parts, &percoreListener{sub, l.settings})
	}
	return parts
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
