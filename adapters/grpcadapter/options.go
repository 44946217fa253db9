package grpcadapter

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"

	"github.com/percore/percore"
)

// ServerOptions returns the options for a server on percore:
//
//   - experimental.BufferPool([BufferPool]()): messages are received in buffers
//     of percore's pool. Unlike grpc-go's, it doesn't overwrite each buffer with
//     zeros before use, and it counts the buffers in use.
//   - grpc.ChainUnaryInterceptor and grpc.ChainStreamInterceptor, if [LimitWork] is among opts.
//
// ServerOptions leaves grpc.WriteBufferSize at grpc-go's 32 KiB. 64 KiB would halve the system
// calls for large messages, but took 10 % more CPU time for 1 MiB (six pairs, 1.10 [1.03 1.21]).
// grpc-go already shares these buffers between all connections, and holds one only while there is
// something in it.
//
// It also leaves grpc.ReadBufferSize at grpc-go's 32 KiB. With TLS but without [Credentials], each
// connection holds that much all the time. Otherwise grpc-go holds it only while there is something
// in it, and a server that receives large messages makes half the system calls with
// grpc.ReadBufferSize(64<<10).
//
// These don't change the server's behaviour, except for what opts ask for. Options that follow them take
// precedence:
//
//	srv := grpc.NewServer(append(grpcadapter.ServerOptions(), grpc.Creds(creds))...)
func ServerOptions(opts ...WorkOption) []grpc.ServerOption {
	options := []grpc.ServerOption{
		experimental.BufferPool(BufferPool()),
	}
	for i, opt := range opts {
		refuseNilOption(opt.work == nil, "ServerOptions", i)
		options = append(options, opt.interceptors()...)
	}
	return options
}

// DialOptions returns the options for a client on percore:
//
//   - grpc.WithContextDialer: it dials percore connections (see [Conn]) over TCP and
//     unix sockets, with the keep-alive that grpc-go's own dialer sets. With any
//     dialer grpc-go does not look for a proxy in the environment: a client that
//     needs one can't use these options. On other systems than Linux this option
//     is left out, and grpc-go dials itself.
//   - experimental.WithBufferPool, as in [ServerOptions].
//   - grpc.WithKeepaliveParams, if [WithKeepaliveParams] is among opts.
//
// Options that follow these take precedence:
//
//	cc, err := grpc.NewClient(target, append(grpcadapter.DialOptions(), more...)...)
func DialOptions(opts ...DialerOption) []grpc.DialOption {
	d := newDialing(opts)
	options := []grpc.DialOption{
		experimental.WithBufferPool(BufferPool()),
	}
	if !connsAreNets || d.dialer != defaultDialer {
		options = append(options, grpc.WithContextDialer(d.dial))
	}
	return append(options, d.options...)
}

// DialerOption is an option of [DialOptions], and of [NewClient].
type DialerOption interface {
	ClientOption
	applyToDialing(*dialing)
}

// WithDialer makes d dial the connections, for clients that need another local address, timeout,
// hook or group of loops. The caller must not change d any more.
func WithDialer(d *percore.Dialer) DialerOption {
	refuseNil(d == nil, "WithDialer", "*percore.Dialer", "leave the option out")
	return withDialer{d}
}

type withDialer struct{ dialer *percore.Dialer }

func (o withDialer) applyToDialing(d *dialing)       { d.dialer = o.dialer }
func (o withDialer) applyToClient(s *clientSettings) { s.dialer = o.dialer }

// dialing holds how a client connects. It is immutable once DialOptions has returned.
type dialing struct {
	settings settings
	dialer   *percore.Dialer
	options  []grpc.DialOption
}

func newDialing(opts []DialerOption) *dialing {
	d := &dialing{settings: settings{userTimeout: leaveUnchanged}, dialer: defaultDialer}
	for i, opt := range opts {
		refuseNilOption(opt == nil, "DialOptions", i)
		opt.applyToDialing(d)
	}
	return d
}

// defaultDialer sets the same options as grpc-go's own dialer: keep-alive is on, with the system's
// parameters instead of Go's.
var defaultDialer = &percore.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1},
}

// dial is the function for grpc.WithContextDialer, which documents the form of target.
func (d *dialing) dial(ctx context.Context, target string) (net.Conn, error) {
	c, err := d.dialer.DialTarget(ctx, target)
	if err != nil {
		return nil, err
	}
	return d.settings.wrap(c), nil
}
