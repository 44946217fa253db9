package grpcadapter

import (
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"

	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
)

// An Option is an option of [NewServer]. [LimitWork] and [DetachInterceptors], which grpc-go doesn't
// have, are also options of [Wrap].
type Option interface{ applyToServer(*rpc.Config) }

// serverOption is an Option that is a function.
type serverOption func(*rpc.Config)

func (o serverOption) applyToServer(c *rpc.Config) { o(c) }

// addedOption is an Option that grpc-go doesn't have.
type addedOption func(*rpc.Config)

func (o addedOption) applyToServer(c *rpc.Config) { o(c) }

// ChainUnaryInterceptor is grpc.ChainUnaryInterceptor: the first interceptor is the outermost. It may be
// given several times; there is no option for a single one.
func ChainUnaryInterceptor(all ...grpc.UnaryServerInterceptor) Option {
	refuseNilOption("ChainUnaryInterceptor", all)
	return serverOption(func(s *rpc.Config) { s.Unary = append(s.Unary, all...) })
}

// ChainStreamInterceptor is grpc.ChainStreamInterceptor: [ChainUnaryInterceptor] for streams.
func ChainStreamInterceptor(all ...grpc.StreamServerInterceptor) Option {
	refuseNilOption("ChainStreamInterceptor", all)
	return serverOption(func(s *rpc.Config) { s.Stream = append(s.Stream, all...) })
}

// DetachInterceptors lets stream interceptors return when the method does, although [Detach] lets
// the call go on. An interceptor that looks at the method's result then sees the call end without an
// error. Its wrappers around the stream see the messages that follow, one at a time. If it must know
// when the call really ends, it can use context.AfterFunc with the stream's context, which ends with
// the call, or be a [StatsHandler]. Without this option the method waits in Detach if there are
// stream interceptors.
func DetachInterceptors() Option {
	return addedOption(func(c *rpc.Config) { c.DetachInterceptors = true })
}

// StatsHandler is grpc.StatsHandler. It may be given several times. WireLength of stats.InHeader is
// 0.
func StatsHandler(h stats.Handler) Option {
	return serverOption(func(s *rpc.Config) {
		if h != nil {
			s.Stats = append(s.Stats, h)
		}
	})
}

// InTapHandle is grpc.InTapHandle. h is called by the goroutine that reads a connection, so it holds
// up other calls.
func InTapHandle(h tap.ServerInHandle) Option {
	return serverOption(func(s *rpc.Config) {
		if s.Tap != nil {
			panic("The tap handle was already set and may not be reset.")
		}
		s.Tap = h
	})
}

// Creds is grpc.Creds. percore's connections with the TLS of package credentials hold no goroutine
// while they wait; connections with other credentials have one that reads.
func Creds(c credentials.TransportCredentials) Option {
	return serverOption(func(s *rpc.Config) { s.Creds = c })
}

// MaxRecvMsgSize is grpc.MaxRecvMsgSize: the longest message that is received, in bytes. The default
// is 4 MiB.
func MaxRecvMsgSize(bytes int) Option {
	return serverOption(func(s *rpc.Config) { s.RecvBytesMax = bytes })
}

// MaxSendMsgSize is grpc.MaxSendMsgSize: the longest message that is sent, in bytes. The default is
// math.MaxInt32.
func MaxSendMsgSize(bytes int) Option {
	return serverOption(func(s *rpc.Config) { s.SendBytesMax = bytes })
}

// KeepaliveParams is grpc.KeepaliveParams. As in grpc-go, TCP_USER_TIMEOUT (tcp(7)) is set to
// kp.Timeout, or to 20 seconds if that is 0 or without this option, so the connection ends if data
// is not acknowledged in time. It is left alone if kp.Time is so large (math.MaxInt64) that the
// server never pings.
func KeepaliveParams(kp keepalive.ServerParameters) Option {
	if kp.Time > 0 {
		kp.Time = max(kp.Time, time.Second) // grpc-go's minimum
	}
	return serverOption(func(s *rpc.Config) { s.Keepalive = kp })
}

// KeepaliveEnforcementPolicy is grpc.KeepaliveEnforcementPolicy: how often clients may ping.
func KeepaliveEnforcementPolicy(p keepalive.EnforcementPolicy) Option {
	return serverOption(func(s *rpc.Config) { s.Pings = p })
}

// MaxConcurrentStreams is grpc.MaxConcurrentStreams: how many calls a connection may have. Without
// it, and with 0, there is no limit.
func MaxConcurrentStreams(n uint32) Option {
	if n == 0 {
		n = math.MaxUint32
	}
	return serverOption(func(s *rpc.Config) { s.Streams = n })
}

// MaxHeaderListSize is grpc.MaxHeaderListSize: how long the header of a request may be, counted as
// in RFC 9113, section 6.5.2. The default is 1 MiB; grpc-go allows 16 MiB.
func MaxHeaderListSize(bytes uint32) Option {
	return serverOption(func(s *rpc.Config) { s.HeaderBytes = bytes })
}

// ForceServerCodecV2 is grpc.ForceServerCodecV2: the codec of all calls.
func ForceServerCodecV2(c encoding.CodecV2) Option {
	return serverOption(func(s *rpc.Config) { s.Codec = c })
}

// ForceServerCodec is grpc.ForceServerCodec, for codecs whose messages are in one piece.
func ForceServerCodec(c encoding.Codec) Option {
	refuseNil(c == nil, "ForceServerCodec", "encoding.Codec", "leave the option out")
	return serverOption(func(s *rpc.Config) { s.Codec = rpc.OldCodec{Of: c} })
}

// UnknownServiceHandler is grpc.UnknownServiceHandler: it serves calls of methods that are not
// registered.
func UnknownServiceHandler(h grpc.StreamHandler) Option {
	refuseNil(h == nil, "UnknownServiceHandler", "grpc.StreamHandler", "leave the option out")
	return serverOption(func(s *rpc.Config) {
		s.Unknown = &grpc.StreamDesc{StreamName: "unknown_service_handler", Handler: h, ClientStreams: true, ServerStreams: true}
	})
}

// WaitForHandlers is grpc.WaitForHandlers: whether [Server.Stop] waits for handlers.
func WaitForHandlers(wait bool) Option {
	return serverOption(func(s *rpc.Config) { s.WaitForHandlers = wait })
}

// ConnectionTimeout is grpc.ConnectionTimeout: how long the handshakes of credentials and HTTP/2 may
// take together. The default is two minutes.
func ConnectionTimeout(d time.Duration) Option {
	return serverOption(func(s *rpc.Config) { s.BeginTimeout = d })
}

// InitialWindowSize is grpc.InitialWindowSize: how many bytes a client may send on a stream before
// the handler has read them. Values below 64 KiB are ignored. The default is 256 KiB. Unlike
// grpc-go's, this window does not grow by itself.
func InitialWindowSize(bytes int32) Option {
	return serverOption(func(s *rpc.Config) { setWindow(&s.StreamWindow, bytes) })
}

// InitialConnWindowSize is grpc.InitialConnWindowSize: how many bytes a client may send on all
// streams of a connection before the handlers have read them. Values below 64 KiB are ignored. By
// default only the streams have limits. Unlike grpc-go's, this window is only given back as handlers
// read, so a handler that reads nothing can hold up others.
func InitialConnWindowSize(bytes int32) Option {
	return serverOption(func(s *rpc.Config) { setWindow(&s.ConnWindow, bytes) })
}

// setWindow sets a window, as grpc-go does: never to less than HTTP/2's initial window.
func setWindow(to *int32, bytes int32) {
	if bytes >= math.MaxUint16 {
		*to = bytes
	}
}
