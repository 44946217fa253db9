package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/stats"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
	"github.com/percore/percore/adapters/h2"
)

// A Client makes gRPC calls with package h2 instead of grpc-go's transport. Generated code takes it
// in place of a *grpc.ClientConn:
//
//	conn, err := grpcadapter.NewClient("dns:///echo.example:50051", grpcadapter.WithTransportCredentials(creds))
//	...
//	client := pb.NewEchoClient(conn)
//
// [Client.ClientConn] is for code that takes only a *grpc.ClientConn.
//
// Calls, metadata, status, deadlines, interceptors, stats handlers, compressors, codecs, credentials,
// resolvers and service configs (pick_first, round_robin, retries, timeouts, limits) are as in grpc-go.
// A connection that waits holds neither a goroutine nor a buffer. All methods are safe for concurrent
// use.
//
// These features of grpc-go are missing: load balancing policies other than pick_first and
// round_robin, xDS, proxies from the environment, channelz, binary logs, golang.org/x/net/trace,
// experimental.AcceptCompressors, grpc.PreparedMsg. A grpc.CallOption that the client doesn't know
// makes the call fail with Unimplemented. NewClient refuses a default service config with another
// policy; a resolver's service config with another policy is treated as grpc-go treats one that it
// can't parse. The ClientConn of grpc.NewClient has all these features, even on percore: pass
// DialTarget of a percore.Dialer to grpc.WithContextDialer.
//
// Experimental: the names may change before v1.
type Client struct {
	rpc *rpc.Client

	mu   sync.Mutex
	conn *grpc.ClientConn // guarded by mu; nil: not asked for yet
}

var _ grpc.ClientConnInterface = (*Client)(nil)

// NewClient makes a client for a target, as grpc.NewClient does: it doesn't connect before the first
// call or [Client.Connect]. Options have the same names and meanings as in grpc-go, but a
// grpc.DialOption can't be passed, so no option is ever ignored. [WithTransportCredentials] must be
// among them.
func NewClient(target string, opts ...ClientOption) (*Client, error) {
	config := rpc.DefaultClientConfig()
	config.Pool = bufferPool{}
	config.Dial = defaultDialer.DialTarget
	for i, opt := range opts {
		if opt == nil {
			return nil, errNilOption("NewClient's options", i)
		}
		opt.applyToClient(&config)
	}
	switch idle := config.Channel.IdleTimeout; {
	case config.Creds == nil:
		return nil, errors.New("grpc: no transport security set (use grpcadapter.WithTransportCredentials(insecure.NewCredentials()) " +
			"explicitly or set credentials)")
	case idle < 0:
		return nil, fmt.Errorf("grpcadapter: WithIdleTimeout was called with %v: want 0, for no limit, or more", idle)
	}
	if k := config.Keepalive; k.Time > 0 { // WithKeepaliveParams was given
		config.Dial = userTimeoutOf(k.Time, k.Timeout).dial(config.Dial)
	}
	config.UserAgent = strings.TrimSpace(config.UserAgent + " grpc-go/" + grpc.Version)
	config.Accepts = registeredCompressors()
	config.Channel.Target = target
	inner, err := rpc.NewClient(config)
	if err != nil {
		return nil, err
	}
	c := &Client{rpc: inner}
	if len(config.Unary) > 0 || len(config.Stream) > 0 {
		c.ClientConn() // for interceptors
	}
	return c, nil
}

// defaultDialer sets the same options as grpc-go's dialer: keep-alive is on, with the system's
// parameters instead of Go's.
var defaultDialer = &percore.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1},
}

// commonCompressors are the compressors of grpc-go's and other packages to look up: the registry
// can't be listed.
var commonCompressors = []string{"gzip", "deflate", "identity", "snappy", "zstd", "lz4", "s2", "br"}

// registeredCompressors returns the compressors that answers may use.
func registeredCompressors() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(commonCompressors), func(name string) bool {
		return name == encoding.Identity || encoding.GetCompressor(name) == nil
	}), ",")
}

// made returns the rpc.Client that makes the calls. It panics in the name of a method if the client
// was not made by NewClient.
func (c *Client) made(method string) *rpc.Client {
	if c == nil || c.rpc == nil {
		panic("grpcadapter: " + method + " was called for a Client that NewClient has not made")
	}
	return c.rpc
}

// Invoke implements [grpc.ClientConnInterface]: it makes a unary call.
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	inner := c.made("Invoke")
	if err := checkCall("Invoke", ctx, opts); err != nil {
		return err
	}
	return inner.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements [grpc.ClientConnInterface]: it begins a call with streams. As with grpc-go, the
// caller must receive until there is an error, or cancel ctx, or close the client.
func (c *Client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	inner := c.made("NewStream")
	if desc == nil {
		return nil, errors.New("grpcadapter: NewStream was called with a nil *grpc.StreamDesc: generated code has one for each method")
	}
	if err := checkCall("NewStream", ctx, opts); err != nil {
		return nil, err
	}
	return inner.NewStream(ctx, desc, method, opts...)
}

// checkCall returns an error if an argument of a call is nil.
func checkCall(method string, ctx context.Context, opts []grpc.CallOption) error {
	if ctx == nil {
		return errors.New("grpcadapter: " + method + " was called with a nil context.Context: context.Background() never ends")
	}
	for i, opt := range opts {
		if opt == nil {
			return errNilOption(method+"'s options", i)
		}
	}
	return nil
}

// Close ends all connections and calls, and closes the ClientConn. The second time the error is
// grpc.ErrClientConnClosing.
func (c *Client) Close() error {
	err := c.made("Close").Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
	}
	return err
}

// Connect begins to connect, unless the client already did. It doesn't wait for a connection.
func (c *Client) Connect() { c.made("Connect").Connect() }

// GetState returns the state of the client as a whole.
func (c *Client) GetState() connectivity.State { return c.made("GetState").GetState() }

// WaitForStateChange waits until the state isn't from, and reports false if ctx ends before that.
func (c *Client) WaitForStateChange(ctx context.Context, from connectivity.State) bool {
	inner := c.made("WaitForStateChange")
	refuseNil(ctx == nil, "WaitForStateChange", "context.Context", "context.Background() never ends")
	return inner.WaitForStateChange(ctx, from)
}

// Target returns the target as it was given.
func (c *Client) Target() string { return c.made("Target").Target() }

// CanonicalTarget returns the target with its scheme.
func (c *Client) CanonicalTarget() string { return c.made("CanonicalTarget").CanonicalTarget() }

// ResetConnectBackoff ends all waits before connecting again.
func (c *Client) ResetConnectBackoff() { c.made("ResetConnectBackoff").ResetConnectBackoff() }

// ClientStats are the metrics of a [Client].
type ClientStats struct {
	Calls    int                   // calls that are running
	Started  uint64                // attempts of calls
	Ended    map[codes.Code]uint64 // attempts that have ended, by code
	Received uint64                // messages
	Sent     uint64                // messages
	HTTP2    h2.ClientStats        // of the client's connections
}

// Stats returns the metrics of the client.
func (c *Client) Stats() ClientStats {
	s, http2 := c.made("Stats").Stats()
	return ClientStats{Calls: s.Calls, Started: s.Started, Ended: s.Ended, Received: s.Received, Sent: s.Sent, HTTP2: http2}
}

// A ClientOption is an option of [NewClient].
type ClientOption interface{ applyToClient(*rpc.ClientConfig) }

// clientOption is a ClientOption that is a function.
type clientOption func(*rpc.ClientConfig)

func (o clientOption) applyToClient(s *rpc.ClientConfig) { o(s) }

// WithTransportCredentials is grpc.WithTransportCredentials. Connections with the TLS of package
// credentials hold no goroutine while they wait; connections with other credentials have one that
// reads.
func WithTransportCredentials(c credentials.TransportCredentials) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.Creds = c })
}

// WithPerRPCCredentials is grpc.WithPerRPCCredentials. It may be given several times.
func WithPerRPCCredentials(c credentials.PerRPCCredentials) ClientOption {
	refuseNil(c == nil, "WithPerRPCCredentials", "credentials.PerRPCCredentials", "leave the option out")
	return clientOption(func(s *rpc.ClientConfig) { s.PerRPC = append(s.PerRPC, c) })
}

// WithAuthority is grpc.WithAuthority: the :authority of the calls.
func WithAuthority(authority string) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.Channel.Authority = authority })
}

// WithUserAgent is grpc.WithUserAgent: the text before grpc-go's own in the field user-agent.
func WithUserAgent(agent string) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.UserAgent = agent })
}

// WithChainUnaryInterceptor is grpc.WithChainUnaryInterceptor: the first interceptor is the outermost.
// It may be given several times; there is no option for a single one.
//
// Interceptors get [Client.ClientConn]. An interceptor may hand the call to another
// *grpc.ClientConn, as with grpc-go.
func WithChainUnaryInterceptor(all ...grpc.UnaryClientInterceptor) ClientOption {
	refuseNilOption("WithChainUnaryInterceptor", all)
	return clientOption(func(s *rpc.ClientConfig) { s.Unary = append(s.Unary, all...) })
}

// WithChainStreamInterceptor is grpc.WithChainStreamInterceptor: [WithChainUnaryInterceptor] for
// streams.
func WithChainStreamInterceptor(all ...grpc.StreamClientInterceptor) ClientOption {
	refuseNilOption("WithChainStreamInterceptor", all)
	return clientOption(func(s *rpc.ClientConfig) { s.Stream = append(s.Stream, all...) })
}

// WithStatsHandler is grpc.WithStatsHandler. It may be given several times. WireLength of stats.InHeader
// and stats.InTrailer is 0.
func WithStatsHandler(h stats.Handler) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) {
		if h != nil {
			s.Stats = append(s.Stats, h)
		}
	})
}

// WithDefaultCallOptions is grpc.WithDefaultCallOptions. It may be given several times.
func WithDefaultCallOptions(opts ...grpc.CallOption) ClientOption {
	refuseNilOption("WithDefaultCallOptions", opts)
	return clientOption(func(s *rpc.ClientConfig) { s.CallOptions = append(s.CallOptions, opts...) })
}

// WithDefaultServiceConfig is grpc.WithDefaultServiceConfig: the service config, as JSON, of targets
// whose resolver brings none.
func WithDefaultServiceConfig(js string) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.ServiceConfig = js })
}

// WithDisableServiceConfig is grpc.WithDisableServiceConfig: service configs from resolvers are
// ignored.
func WithDisableServiceConfig() ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.Channel.DisableServiceConfig = true })
}

// WithDisableHealthCheck is grpc.WithDisableHealthCheck: the healthCheckConfig of service configs is
// ignored. Without this option round_robin follows it, even if grpc-go's package health is not
// imported.
func WithDisableHealthCheck() ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.DisableHealthCheck = true })
}

// WithDisableRetry is grpc.WithDisableRetry: a call is tried again only if no server has seen it.
func WithDisableRetry() ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.DisableRetry = true })
}

// WithMaxCallAttempts is grpc.WithMaxCallAttempts: how often a call is tried at most, including the
// first time, whatever the service config says. Values below 2 mean 5, the default.
func WithMaxCallAttempts(n int) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) {
		if n < 2 {
			n = rpc.DefaultClientConfig().AttemptsMost
		}
		s.AttemptsMost = n
	})
}

// WithMaxHeaderListSize is grpc.WithMaxHeaderListSize: how long the header and the trailers of an
// answer may be, counted as in RFC 9113, section 6.5.2. The default is 1 MiB; grpc-go allows 16 MiB.
func WithMaxHeaderListSize(bytes uint32) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.HeaderBytes = bytes })
}

// WithInitialWindowSize is grpc.WithInitialWindowSize: how many bytes a server may send on a stream
// before they are received. Values below 64 KiB are ignored. The default is 256 KiB. Unlike
// grpc-go's, this window does not grow by itself.
func WithInitialWindowSize(bytes int32) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { setWindow(&s.StreamWindow, bytes) })
}

// WithInitialConnWindowSize is grpc.WithInitialConnWindowSize: how many bytes of a connection may be
// on their way. Bytes that have come and wait for RecvMsg don't count. Values below 64 KiB are
// ignored. The default is 64 MiB.
func WithInitialConnWindowSize(bytes int32) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { setWindow(&s.ConnWindow, bytes) })
}

// WithConnectParams is grpc.WithConnectParams: how long connecting may take, and how long to wait after
// a failure.
func WithConnectParams(p grpc.ConnectParams) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.Channel.ConnectParams = p })
}

// WithResolvers is grpc.WithResolvers: resolvers of this client, before those that are registered.
func WithResolvers(all ...resolver.Builder) ClientOption {
	refuseNilOption("WithResolvers", all)
	return clientOption(func(s *rpc.ClientConfig) { s.Channel.Resolvers = append(s.Channel.Resolvers, all...) })
}

// WithIdleTimeout is grpc.WithIdleTimeout: how long the client stays connected without calls. The
// default is 30 minutes; 0 means no limit.
func WithIdleTimeout(d time.Duration) ClientOption {
	return clientOption(func(s *rpc.ClientConfig) { s.Channel.IdleTimeout = d })
}

// WithContextDialer is grpc.WithContextDialer. Pass DialTarget of a [percore.Dialer] to dial with
// its local address, timeout, hook or group of loops. If dial makes connections without percore,
// each has a goroutine that reads.
func WithContextDialer(dial func(ctx context.Context, addr string) (net.Conn, error)) ClientOption {
	refuseNil(dial == nil, "WithContextDialer", "function", "leave the option out")
	return clientOption(func(s *rpc.ClientConfig) { s.Dial = dial })
}

// WithKeepaliveParams is grpc.WithKeepaliveParams: when the client pings, at most once in 10
// seconds, and when it gives up a connection. As in grpc-go, TCP_USER_TIMEOUT (tcp(7)) is set to
// kp.Timeout, or 20 seconds if that is 0, so the connection ends if data is not acknowledged in
// time; it is left alone if kp.Time is so large (math.MaxInt64) that there are no pings. Without
// this option there are neither pings nor a TCP_USER_TIMEOUT.
func WithKeepaliveParams(kp keepalive.ClientParameters) ClientOption {
	kp.Time = max(kp.Time, 10*time.Second) // grpc-go's minimum
	return clientOption(func(s *rpc.ClientConfig) { s.Keepalive = kp })
}
