package rpc

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/stats"

	"github.com/percore/percore/adapters/grpcadapter/internal/channel"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/shared/counters"
)

// A ClientConfig holds the options of a client. Only DefaultClientConfig sets defaults.
type ClientConfig struct {
	Unary  []grpc.UnaryClientInterceptor  // the first is the outermost
	Stream []grpc.StreamClientInterceptor // the same
	Stats  []stats.Handler                // called in this order
	Pool   mem.BufferPool

	Creds        credentials.TransportCredentials
	PerRPC       []credentials.PerRPCCredentials
	CallOptions  []grpc.CallOption
	UserAgent    string
	Accepts      string // the compressors accepted in answers, separated by commas
	Keepalive    keepalive.ClientParameters
	HeaderBytes  uint32 // limit for an answer's header, and for its trailers
	StreamWindow int32
	ConnWindow   int32
	DisableRetry bool
	AttemptsMost int // limit of attempts per call

	DisableHealthCheck bool

	// ServiceConfig is used if the resolver has no service config; "" means no service config.
	ServiceConfig string

	// Dial connects to an address, as grpc.WithContextDialer documents it.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	Channel channel.Config // NewClient sets Dial, Build, and the fields about service configs
}

// DefaultClientConfig returns grpc-go's defaults, as far as it has any.
func DefaultClientConfig() ClientConfig {
	return ClientConfig{
		Pool:         mem.DefaultBufferPool(),
		HeaderBytes:  headerBytes,
		StreamWindow: streamWindow,
		ConnWindow:   clientConnWindow,
		AttemptsMost: 5,
		Channel: channel.Config{
			IdleTimeout:   30 * time.Minute,
			ConnectParams: grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 20 * time.Second},
		},
	}
}

// clientConnWindow is how many bytes may be under way on a connection. As with grpc-go, the credit of
// the connection doesn't wait for calls that don't receive: they would hold up the others.
const clientConnWindow = 64 << 20

// A Client makes calls. Its methods and those of its channel are safe for concurrent use.
type Client struct {
	*channel.Channel

	// immutable
	config             ClientConfig
	interceptUnary     grpc.UnaryClientInterceptor  // nil without interceptors
	interceptStream    grpc.StreamClientInterceptor // the same
	stats              stats.Handler                // the same
	http               *h2.Client
	scheme             string   // of calls
	userAgent, accepts h2.Field // the same; accepts has no value if there are no compressors
	counters           *counters.Set[counter]

	service  atomic.Pointer[serviceConfig] // applies to new calls
	throttle atomic.Pointer[throttle]      // nil: retries are not throttled
	pingTime atomic.Int64                  // for new connections; 0: they send no PINGs
	closed   atomic.Bool
	conn     atomic.Pointer[grpc.ClientConn] // see SetConn
	watch    atomic.Pointer[func()]          // see WatchServiceConfig

	streams context.Context // ends with the client, after its connections; ends calls without a RecvMsg
	end     context.CancelFunc
}

// NewClient makes a client. It doesn't connect.
func NewClient(config ClientConfig) (*Client, error) {
	c := &Client{
		config: config, counters: counters.NewSet(counters.Cells(), counterCount), scheme: "http",
		interceptUnary: chainUnaryClient(config.Unary), interceptStream: chainStreamClient(config.Stream),
		stats:     combineStats(config.Stats),
		userAgent: h2.MakeField("user-agent", config.UserAgent), accepts: h2.MakeField("grpc-accept-encoding", config.Accepts),
	}
	if config.Creds.Info().SecurityProtocol == "tls" {
		c.scheme = "https"
	}
	if config.Creds.Info().SecurityProtocol == "insecure" && c.hasSecrets() {
		return nil, errors.New("grpc: the credentials require transport level security (use grpc.WithTransportCredentials() to set)")
	}
	c.streams, c.end = context.WithCancel(context.Background())
	c.service.Store(&serviceConfig{policy: pickfirst.Name})
	if js := config.ServiceConfig; js != "" {
		parsed := parseServiceConfig(js)
		if parsed.Err != nil {
			return nil, errors.New("grpc: the provided default service config is invalid: " + parsed.Err.Error())
		}
		c.setServiceConfig(parsed.Config.(*serviceConfig))
	}
	ch := config.Channel
	ch.Dial = c.dial
	ch.ParseServiceConfig = parseServiceConfig
	ch.OnServiceConfig = func(config serviceconfig.Config) bool {
		parsed, ok := config.(*serviceConfig)
		if ok {
			c.setServiceConfig(parsed)
		}
		return ok
	}
	ch.HealthCheck = c.healthCheck
	ch.Policy = func() (string, serviceconfig.LoadBalancingConfig) {
		s := c.service.Load()
		return s.policy, s.policyConfig
	}
	ch.Build = resolver.BuildOptions{DialCreds: config.Creds, Dialer: config.Dial}
	var err error
	if c.Channel, err = channel.New(ch); err != nil {
		return nil, err
	}
	http := c.httpConfig()
	c.http = h2.NewClient(http)
	c.pingTime.Store(int64(http.PingAfter))
	counters.Enlist(clients, c, c.counters)
	return c, nil
}

// hasSecrets reports whether credentials of all calls may be sent on secure connections only.
func (c *Client) hasSecrets() bool {
	return slices.ContainsFunc(c.config.PerRPC, credentials.PerRPCCredentials.RequireTransportSecurity)
}

// httpConfig returns the configuration of the connections.
func (c *Client) httpConfig() h2.ClientConfig {
	k := c.config.Keepalive
	to := h2.ClientConfig{
		HeaderBytes:  int(c.config.HeaderBytes),
		HeaderFields: headerFields,
		StreamWindow: int(c.config.StreamWindow),
		ConnWindow:   int(c.config.ConnWindow),
		BeginTimeout: time.Hour, // the context of dial limits it
		WriteTimeout: -1,        // keepalive limits it, as in grpc-go
		State:        connState,

		CreditOnReceipt: true,
		AnswerEnds:      true,
	}
	if k.Time > 0 && k.Time != forever {
		to.PingAfter = k.Time
		to.PingTimeout = 20 * time.Second
		to.PingIdle = k.PermitWithoutStream
		if k.Timeout > 0 {
			to.PingTimeout = k.Timeout
		}
	}
	return to
}

// Invoke implements [grpc.ClientConnInterface].
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	opts = c.callOptions(opts)
	if intercept := c.interceptUnary; intercept != nil {
		return intercept(ctx, method, args, reply, c.conn.Load(), c.invoke, opts...)
	}
	return c.unary(ctx, method, args, reply, opts)
}

// callOptions returns the default options followed by opts. An interceptor may append to them.
func (c *Client) callOptions(opts []grpc.CallOption) []grpc.CallOption {
	if defaults := c.config.CallOptions; len(defaults) > 0 {
		return append(slices.Clip(defaults), opts...)
	}
	return opts
}

// unary makes a unary call, after the interceptors.
func (c *Client) unary(ctx context.Context, method string, args, reply any, opts []grpc.CallOption) error {
	s, err := c.newStream(ctx, unaryDesc, method, opts)
	if err != nil {
		return err
	}
	return s.exchange(args, reply)
}

// NewStream implements [grpc.ClientConnInterface].
func (c *Client) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	opts = c.callOptions(opts)
	if intercept := c.interceptStream; intercept != nil {
		return intercept(ctx, desc, c.conn.Load(), method, c.streamer, opts...)
	}
	return c.stream(ctx, desc, method, opts)
}

// stream begins a stream, after the interceptors.
func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, method string, opts []grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.newStream(ctx, desc, method, opts)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends all connections and calls. The error is grpc.ErrClientConnClosing if it was called before.
func (c *Client) Close() error {
	c.closed.Store(true)
	clientsOf.Delete(c.conn.Load())
	err := c.Channel.Close()
	_ = c.http.Close()
	c.end()
	return err
}

// AttemptsMost returns the limit of attempts per call.
func (c *Client) AttemptsMost() int { return c.config.AttemptsMost }

// Stats returns the metrics of the attempts of calls, and of HTTP/2.
func (c *Client) Stats() (Stats, h2.ClientStats) {
	return sums(c.counters.Sums()).stats(), c.http.Stats()
}

// setServiceConfig makes later calls use the config. It resets the retry tokens, as in grpc-go.
func (c *Client) setServiceConfig(to *serviceConfig) {
	c.service.Store(to)
	c.throttle.Store(to.newThrottle())
	if f := c.watch.Load(); f != nil {
		go (*f)() // f may wait, and the caller holds the channel's lock
	}
}

// WatchServiceConfig calls f now, and on its own goroutine after each change of the service config. A
// later f replaces an earlier one.
func (c *Client) WatchServiceConfig(f func()) {
	c.watch.Store(&f)
	f()
}

// ServiceConfig returns the service config, as JSON.
func (c *Client) ServiceConfig() string { return c.service.Load().js }
