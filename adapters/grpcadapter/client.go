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

// A Client makes gRPC calls on package h2 instead of grpc-go's transport. Generated code takes it in the
// place of a *grpc.ClientConn:
//
//	conn, err := grpcadapter.NewClient("dns:///echo.example:50051", grpcadapter.WithTransportCredentials(creds))
//	...
//	client := pb.NewEchoClient(conn)
//
// [Client.ClientConn] is for code that takes nothing but a *grpc.ClientConn.
//
// Calls, metadata, status, deadlines, interceptors, stats handlers, compressors, codecs, credentials,
// resolvers and service configs (pick_first, round_robin, retries, timeouts, limits) are as in grpc-go.
// A connection that waits holds neither a goroutine nor a buffer. All methods are safe for concurrent
// use.
//
// These things of grpc-go are missing: other policies of load balancing than pick_first and
// round_robin, xDS, proxies of the environment, channelz, binary logs, traces of package
// golang.org/x/net/trace, experimental.AcceptCompressors, grpc.PreparedMsg. A grpc.CallOption that the
// client doesn't know makes the call fail with Unimplemented. A default service config with another
// policy is refused by NewClient; one that a resolver brings is treated as grpc-go treats one that it
// can't parse. grpc.NewClient's ClientConn has all of that, also on percore: grpc.WithContextDialer
// takes DialTarget of a percore.Dialer.
//
// Experimental: the names may change before v1.
type Client struct {
	rpc *rpc.Client

	mu   sync.Mutex
	conn *grpc.ClientConn // guarded by mu; nil: it has not been wanted
}

var _ grpc.ClientConnInterface = (*Client)(nil)

// NewClient makes a client for a target, as grpc.NewClient does: it doesn't connect before the first
// call or [Client.Connect]. Options have the names of grpc-go's, and their meaning. A grpc.DialOption
// can't be passed, so that none is ignored. [WithTransportCredentials] must be among them.
func NewClient(target string, opts ...ClientOption) (*Client, error) {
	s := clientSettings{ClientConfig: rpc.DefaultClientConfig()}
	s.Pool = bufferPool{}
	s.dialTarget = defaultDialer.DialTarget
	for i, opt := range opts {
		if opt == nil {
			return nil, errNilOption("NewClient's options", i)
		}
		opt.applyToClient(&s)
	}
	return s.client(target)
}

// client makes the client.
func (s *clientSettings) client(target string) (_ *Client, err error) {
	switch {
	case s.Creds == nil:
		return nil, errors.New("grpc: no transport security set (use grpcadapter.WithTransportCredentials(insecure.NewCredentials()) " +
			"explicitly or set credentials)")
	case s.refused != nil:
		return nil, s.refused
	}
	s.Unary, s.Stream, s.Stats = rpc.ChainUnaryClient(s.unary), rpc.ChainStreamClient(s.stream), rpc.CombineStats(s.stats)
	s.Dial = s.dial
	s.UserAgent = strings.TrimSpace(s.UserAgent + " grpc-go/" + grpc.Version)
	s.Accepts = registeredCompressors()
	s.Channel.Target = target
	c := new(Client)
	if c.rpc, err = rpc.NewClient(s.ClientConfig); err != nil {
		return nil, err
	}
	if s.Unary != nil || s.Stream != nil {
		c.ClientConn() // for interceptors
	}
	return c, nil
}

// defaultDialer sets the same options as grpc-go's own dialer: keep-alive is on, with the system's
// parameters instead of Go's.
var defaultDialer = &percore.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1},
}

// dial connects to an address.
func (s *clientSettings) dial(ctx context.Context, addr string) (net.Conn, error) {
	nc, err := s.dialTarget(ctx, addr)
	if err == nil {
		s.userTimeout.set(nc) // now: before connect it would limit the time for that, too
	}
	return nc, err
}

// commonCompressors are those of grpc-go's own packages and of others, whose names can be looked up: the
// registry can't be listed.
var commonCompressors = []string{"gzip", "deflate", "identity", "snappy", "zstd", "lz4", "s2", "br"}

// registeredCompressors returns the compressors that answers may have.
func registeredCompressors() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(commonCompressors), func(name string) bool {
		return name == encoding.Identity || encoding.GetCompressor(name) == nil
	}), ",")
}

// check panics in the name of a method if the client is not one of NewClient.
func (c *Client) check(method string) {
	if c == nil || c.rpc == nil {
		panic("grpcadapter: " + method + " was called for a Client that NewClient has not made")
	}
}

// Invoke implements [grpc.ClientConnInterface]: it makes a unary call.
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.check("Invoke")
	if err := checkCall("Invoke", ctx, opts); err != nil {
		return err
	}
	return c.rpc.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements [grpc.ClientConnInterface]: it begins a call with streams. As with grpc-go, the
// caller must receive until there is an error, or cancel ctx, or close the client.
func (c *Client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.check("NewStream")
	if desc == nil {
		return nil, errors.New("grpcadapter: NewStream was called with a nil *grpc.StreamDesc: generated code has one for each method")
	}
	if err := checkCall("NewStream", ctx, opts); err != nil {
		return nil, err
	}
	return c.rpc.NewStream(ctx, desc, method, opts...)
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
	c.check("Close")
	err := c.rpc.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
	}
	return err
}

// Connect begins to connect, unless that was begun. It doesn't wait for a connection.
func (c *Client) Connect() {
	c.check("Connect")
	c.rpc.Connect()
}

// GetState returns the state of the client as a whole.
func (c *Client) GetState() connectivity.State {
	c.check("GetState")
	return c.rpc.GetState()
}

// WaitForStateChange waits until the state isn't from, and reports false if ctx ends before that.
func (c *Client) WaitForStateChange(ctx context.Context, from connectivity.State) bool {
	c.check("WaitForStateChange")
	refuseNil(ctx == nil, "WaitForStateChange", "context.Context", "context.Background() never ends")
	return c.rpc.WaitForStateChange(ctx, from)
}

// Target returns the target as it was given.
func (c *Client) Target() string {
	c.check("Target")
	return c.rpc.Target()
}

// CanonicalTarget returns the target with its scheme.
func (c *Client) CanonicalTarget() string {
	c.check("CanonicalTarget")
	return c.rpc.CanonicalTarget()
}

// ResetConnectBackoff makes what waits to connect again do so now.
func (c *Client) ResetConnectBackoff() {
	c.check("ResetConnectBackoff")
	c.rpc.ResetConnectBackoff()
}

// ClientStats are the metrics of a [Client].
type ClientStats struct {
	Calls    int                   // that are under way
	Started  uint64                // attempts of calls
	Ended    map[codes.Code]uint64 // of these, by the code
	Received uint64                // messages
	Sent     uint64                // messages
	HTTP2    h2.ClientStats        // of the connections
}

// Stats returns the metrics of the client.
func (c *Client) Stats() ClientStats {
	c.check("Stats")
	return ClientStats(c.rpc.Stats())
}

// A ClientOption is an option of [NewClient].
type ClientOption interface{ applyToClient(*clientSettings) }

// clientSettings is what the options change.
type clientSettings struct {
	rpc.ClientConfig
	dialTarget  func(ctx context.Context, addr string) (net.Conn, error)
	userTimeout userTimeout
	unary       []grpc.UnaryClientInterceptor
	stream      []grpc.StreamClientInterceptor
	stats       []stats.Handler
	refused     error // an option that can't be offered
}

// clientOption is a ClientOption that is a function.
type clientOption func(*clientSettings)

func (o clientOption) applyToClient(s *clientSettings) { o(s) }

// WithTransportCredentials is grpc.WithTransportCredentials. Connections over the TLS of package
// credentials hold no goroutine while they wait; those of other credentials have one that reads.
func WithTransportCredentials(c credentials.TransportCredentials) ClientOption {
	return clientOption(func(s *clientSettings) { s.Creds = c })
}

// WithPerRPCCredentials is grpc.WithPerRPCCredentials. It may be given several times.
func WithPerRPCCredentials(c credentials.PerRPCCredentials) ClientOption {
	refuseNil(c == nil, "WithPerRPCCredentials", "credentials.PerRPCCredentials", "leave the option out")
	return clientOption(func(s *clientSettings) { s.PerRPC = append(s.PerRPC, c) })
}

// WithAuthority is grpc.WithAuthority: the :authority of the calls.
func WithAuthority(authority string) ClientOption {
	return clientOption(func(s *clientSettings) { s.Channel.Authority = authority })
}

// WithUserAgent is grpc.WithUserAgent: what comes before grpc-go's own words in the field user-agent.
func WithUserAgent(agent string) ClientOption {
	return clientOption(func(s *clientSettings) { s.UserAgent = agent })
}

// WithChainUnaryInterceptor is grpc.WithChainUnaryInterceptor: the first interceptor is the outermost.
// It may be given several times; there is no option for a single one.
//
// The *grpc.ClientConn that interceptors get is [Client.ClientConn]. An interceptor may hand the call to
// another *grpc.ClientConn, as with grpc-go.
func WithChainUnaryInterceptor(all ...grpc.UnaryClientInterceptor) ClientOption {
	for i, one := range all {
		refuseNilOption(one == nil, "WithChainUnaryInterceptor", i)
	}
	return clientOption(func(s *clientSettings) { s.unary = append(s.unary, all...) })
}

// WithChainStreamInterceptor is grpc.WithChainStreamInterceptor: [WithChainUnaryInterceptor] for
// streams.
func WithChainStreamInterceptor(all ...grpc.StreamClientInterceptor) ClientOption {
	for i, one := range all {
		refuseNilOption(one == nil, "WithChainStreamInterceptor", i)
	}
	return clientOption(func(s *clientSettings) { s.stream = append(s.stream, all...) })
}

// WithStatsHandler is grpc.WithStatsHandler. It may be given several times. WireLength of stats.InHeader
// and stats.InTrailer is 0.
func WithStatsHandler(h stats.Handler) ClientOption {
	return clientOption(func(s *clientSettings) {
		if h != nil {
			s.stats = append(s.stats, h)
		}
	})
}

// WithDefaultCallOptions is grpc.WithDefaultCallOptions. It may be given several times.
func WithDefaultCallOptions(opts ...grpc.CallOption) ClientOption {
	for i, one := range opts {
		refuseNilOption(one == nil, "WithDefaultCallOptions", i)
	}
	return clientOption(func(s *clientSettings) { s.CallOptions = append(s.CallOptions, opts...) })
}

// WithDefaultServiceConfig is grpc.WithDefaultServiceConfig: the service config, as JSON, of targets
// whose resolver brings none.
func WithDefaultServiceConfig(js string) ClientOption {
	return clientOption(func(s *clientSettings) { s.ServiceConfig = js })
}

// WithDisableServiceConfig is grpc.WithDisableServiceConfig: those of resolvers are ignored.
func WithDisableServiceConfig() ClientOption {
	return clientOption(func(s *clientSettings) { s.Channel.DisableServiceConfig = true })
}

// WithDisableHealthCheck is grpc.WithDisableHealthCheck: the healthCheckConfig of service configs is
// ignored. Without it, round_robin heeds that, also if package health of grpc-go is not imported.
func WithDisableHealthCheck() ClientOption {
	return clientOption(func(s *clientSettings) { s.DisableHealthCheck = true })
}

// WithDisableRetry is grpc.WithDisableRetry: no call is tried again, except those that a server has not
// seen.
func WithDisableRetry() ClientOption {
	return clientOption(func(s *clientSettings) { s.DisableRetry = true })
}

// WithMaxCallAttempts is grpc.WithMaxCallAttempts: how often a call is tried at most, with the first
// time, whatever the service config says. Values below 2 mean 5, as without it.
func WithMaxCallAttempts(n int) ClientOption {
	return clientOption(func(s *clientSettings) {
		if n < 2 {
			n = rpc.DefaultClientConfig().AttemptsMost
		}
		s.AttemptsMost = n
	})
}

// WithMaxHeaderListSize is grpc.WithMaxHeaderListSize: how long the header and the trailers of an answer
// may be, counted as in RFC 9113, section 6.5.2. Without it that is 1 MiB; grpc-go allows 16 MiB.
func WithMaxHeaderListSize(bytes uint32) ClientOption {
	return clientOption(func(s *clientSettings) { s.HeaderBytes = bytes })
}

// WithInitialWindowSize is grpc.WithInitialWindowSize: how many bytes a server may send on a stream
// before they are received. Values below 64 KiB are ignored. Without it that is 256 KiB. Unlike
// grpc-go's, this window does not grow by itself.
func WithInitialWindowSize(bytes int32) ClientOption {
	return clientOption(func(s *clientSettings) {
		if bytes >= windowMin {
			s.StreamWindow = bytes
		}
	})
}

// WithInitialConnWindowSize is grpc.WithInitialConnWindowSize: how many bytes of a connection may be
// under way. Bytes that have come and wait for RecvMsg don't count. Values below 64 KiB are ignored.
// Without it that is 64 MiB.
func WithInitialConnWindowSize(bytes int32) ClientOption {
	return clientOption(func(s *clientSettings) {
		if bytes >= windowMin {
			s.ConnWindow = bytes
		}
	})
}

// WithConnectParams is grpc.WithConnectParams: how long connecting may take, and how long to wait after
// a failure.
func WithConnectParams(p grpc.ConnectParams) ClientOption {
	return clientOption(func(s *clientSettings) { s.Channel.ConnectParams = &p })
}

// WithResolvers is grpc.WithResolvers: resolvers of this client, before those that are registered.
func WithResolvers(all ...resolver.Builder) ClientOption {
	for i, one := range all {
		refuseNilOption(one == nil, "WithResolvers", i)
	}
	return clientOption(func(s *clientSettings) { s.Channel.Resolvers = append(s.Channel.Resolvers, all...) })
}

// WithIdleTimeout is grpc.WithIdleTimeout: how long the client stays connected without calls. Without it
// that is 30 minutes; 0: no limit.
func WithIdleTimeout(d time.Duration) ClientOption {
	return clientOption(func(s *clientSettings) {
		if d < 0 {
			s.refused = fmt.Errorf("grpcadapter: WithIdleTimeout was called with %v: want 0, for no limit, or more", d)
		}
		s.Channel.IdleTimeout = d
	})
}

// WithContextDialer is grpc.WithContextDialer. A [percore.Dialer] with another local address, timeout,
// hook or group of loops dials if its method DialTarget is given. Connections that dial makes without
// percore are read from by a goroutine each.
func WithContextDialer(dial func(ctx context.Context, addr string) (net.Conn, error)) ClientOption {
	refuseNil(dial == nil, "WithContextDialer", "function", "leave the option out")
	return clientOption(func(s *clientSettings) { s.dialTarget = dial })
}

// WithKeepaliveParams is grpc.WithKeepaliveParams: when the client pings, at most once in 10 seconds,
// and when it gives a connection up. As in grpc-go, TCP_USER_TIMEOUT (tcp(7)) is set to kp.Timeout, 20
// seconds if that is 0, so that data which is not acknowledged in time ends the connection; it is left
// alone if kp.Time is so large (math.MaxInt64) that there are no pings. Without this option there are
// neither.
func WithKeepaliveParams(kp keepalive.ClientParameters) ClientOption {
	kp.Time = max(kp.Time, 10*time.Second) // grpc-go's least
	return clientOption(func(s *clientSettings) {
		s.Keepalive, s.userTimeout = kp, userTimeoutOf(kp.Time, kp.Timeout)
	})
}
