package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/zerocopy"
)

// The values of -engine.
const (
	enginePercore = "percore"
	engineNet     = "net"
)

// loopsMax is the largest value that -loops accepts, as loop.Config does.
const loopsMax = 1024

// serveEngine makes the listeners and adapters for the servers. Only this part of the command
// depends on the engine: the code above it is the same for percore and net, so the two can be
// compared.
type serveEngine struct {
	name  string
	plain bool        // run servers without adapters, as always with net
	group *loop.Group // nil with net, and where percore itself runs on net
	lc    percore.ListenConfig

	maxAge time.Duration // of gRPC's connections; 0: no limit

	adminConfig percore.ListenConfig // with a loop of its own
}

// newServeEngine starts the engine that the options choose.
func newServeEngine(opts serveOptions) (*serveEngine, error) {
	e := &serveEngine{name: opts.engine, maxAge: opts.maxAge, plain: opts.plain || opts.engine == engineNet}
	if e.name == engineNet {
		return e, nil
	}
	e.lc.MaxConns = opts.maxConns
	proxies, err := parseNetworks(opts.proxies)
	if err != nil {
		return nil, err
	}
	if proxies != nil {
		e.lc.ProxyProtocol = &percore.ProxyProtocol{Trusted: proxies}
	}
	group, err := loop.NewGroup(loop.Config{Loops: opts.loops, Name: "serve"})
	if errors.Is(err, errors.ErrUnsupported) {
		return e, nil
	}
	if err != nil {
		return nil, fmt.Errorf("starting the engine: %w", err)
	}
	e.group, e.lc.Group = group, group
	if e.adminConfig.Group, err = loop.NewGroup(loop.Config{Loops: 1, Name: "admin"}); err != nil {
		group.Close()
		return nil, fmt.Errorf("starting the admin server's loop: %w", err)
	}
	return e, nil
}

// listen says where a part listens: at an address, on percore's engine, or else on a listener that is
// opened now.
func (e *serveEngine) listen(ctx context.Context, p *handover.Part, address string) (err error) {
	if e.group != nil {
		p.Address, p.Config = address, &e.lc
		if p.Name == "admin" {
			p.Config = &e.adminConfig
		}
		return nil
	}
	var lc interface {
		Listen(ctx context.Context, network, address string) (net.Listener, error)
	} = &net.ListenConfig{}
	if e.name != engineNet {
		lc = &e.lc
	}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("-%s: %w", p.Name, err)
	}
	p.Listener = &countingListener{Listener: l}
	return nil
}

// openListener is a listener of one of the servers.
type openListener struct{ net.Listener }

// accepted returns how many connections it has accepted.
func (l openListener) accepted() uint64 {
	switch l := l.Listener.(type) {
	case *percore.Listener:
		return l.Stats().Accepted + l.Stats().Adopted
	case *countingListener:
		return l.accepted.Load()
	}
	return 0
}

// countingListener counts the connections of a listener that doesn't count them itself. It returns
// them unwrapped, because servers look for methods beyond those of net.Conn.
type countingListener struct {
	net.Listener
	accepted atomic.Uint64
}

// Accept implements net.Listener.
func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return c, err
}

// webServer has the methods that an http.Server and an httpadapter.Server share.
type webServer interface {
	Serve(l net.Listener) error
	ServeTLS(l net.Listener, certFile, keyFile string) error
	Shutdown(ctx context.Context) error
	Close() error
}

// runHTTP returns the server that runs srv.
func (e *serveEngine) runHTTP(srv *http.Server, opts serveOptions) webServer {
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	if e.plain {
		return srv
	}
	var options []httpadapter.Option
	if opts.maxAge > 0 {
		options = append(options, httpadapter.MaxAge(opts.maxAge, 0))
	}
	if opts.netHTTP1 {
		options = append(options, httpadapter.NetHTTP1())
	}
	return httpadapter.Wrap(srv, options...)
}

// newCallServer returns a gRPC server with these interceptors: grpcadapter's, or grpc-go's if there are
// to be no adapters. Its Stop waits for handlers, so that nothing runs afterwards.
func (e *serveEngine) newCallServer(unary grpc.UnaryServerInterceptor, stream grpc.StreamServerInterceptor) callServer {
	if e.plain {
		return grpc.NewServer(grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream), grpc.WaitForHandlers(true))
	}
	options := []grpcadapter.Option{
		grpcadapter.UnaryInterceptor(unary), grpcadapter.StreamInterceptor(stream), grpcadapter.WaitForHandlers(true),
	}
	if e.maxAge > 0 {
		options = append(options, grpcadapter.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: e.maxAge}))
	}
	return grpcadapter.NewServer(options...)
}

// calls describes the calls that srv served. srv comes from newCallServer.
func (e *serveEngine) calls(srv callServer) string {
	adapter, ok := srv.(*grpcadapter.Server)
	if !ok {
		return e.notAvailable()
	}
	stats := adapter.Stats()
	failed := stats.Started - uint64(stats.Calls) - stats.Ended[codes.OK]
	return fmt.Sprintf("%s, %d of them not OK, on %s; %s received, %d sent",
		plural(stats.Started, "call"), failed, plural(stats.HTTP2.Opened, "connection"),
		plural(stats.Received, "message"), stats.Sent)
}

// String names the engine for people.
func (e *serveEngine) String() string {
	switch {
	case e.group != nil && e.plain:
		return fmt.Sprintf("%s, %s, no adapters", e.name, plural(e.group.Len(), "loop"))
	case e.group != nil:
		return fmt.Sprintf("%s, %s", e.name, plural(e.group.Len(), "loop"))
	case e.name != engineNet:
		return fmt.Sprintf("%s (which is net on %s)", e.name, runtime.GOOS)
	}
	return e.name
}

// eventsPerWakeup describes how many events a wake-up delivers. The more there are, the less each
// request costs.
func (e *serveEngine) eventsPerWakeup() string {
	if e.group == nil {
		return e.notAvailable()
	}
	stats := e.group.Stats()
	if stats.Wakeups == 0 {
		return "none (no wake-ups)"
	}
	return fmt.Sprintf("%.2f (%d events, %d wake-ups, %s)",
		float64(stats.Events)/float64(stats.Wakeups), stats.Events, stats.Wakeups, plural(stats.Loops, "loop"))
}

// parked describes how often connections of srv were parked. srv comes from runHTTP.
func (e *serveEngine) parked(srv webServer) string {
	adapter, ok := srv.(*httpadapter.Server)
	if e.group == nil || !ok {
		return e.notAvailable()
	}
	stats := adapter.Stats()
	return fmt.Sprintf("%s, woken up %s", plural(stats.Parks, "time"), plural(stats.Unparks, "time"))
}

// fastPath describes how many requests of srv took the fast path, and why the others did not. srv
// comes from runHTTP.
func (e *serveEngine) fastPath(srv webServer) string {
	adapter, ok := srv.(*httpadapter.Server)
	if e.group == nil || !ok {
		return e.notAvailable()
	}
	stats := adapter.FastPathStats()
	var others []string
	for _, reason := range slices.Sorted(maps.Keys(stats.Declined)) {
		others = append(others, fmt.Sprintf("%s %d", reason, stats.Declined[reason]))
	}
	if len(others) == 0 {
		return plural(stats.Requests, "request")
	}
	return fmt.Sprintf("%s; by net/http, because of: %s", plural(stats.Requests, "request"), strings.Join(others, ", "))
}

// http2 describes what srv served over HTTP/2. srv comes from runHTTP.
func (e *serveEngine) http2(srv webServer) string {
	adapter, ok := srv.(*httpadapter.Server)
	if e.group == nil || !ok {
		return e.notAvailable()
	}
	stats := adapter.HTTP2Stats()
	return fmt.Sprintf("%s on %s; %s by clients, %s by the server",
		plural(stats.Requests, "request"), plural(stats.Opened, "connection"),
		plural(stats.ResetsByClient, "reset"), plural(stats.ResetsByServer, "reset"))
}

// zeroCopied describes how many bytes were transferred without passing through this program's
// memory.
func (e *serveEngine) zeroCopied() string {
	if e.group == nil {
		return e.notAvailable()
	}
	stats := zerocopy.ReadStats()
	return fmt.Sprintf("%s by sendfile, %s by splice", plural(stats.SendfileBytes, "byte"), plural(stats.SpliceBytes, "byte"))
}

// notAvailable explains why there are no figures if there is no group.
func (e *serveEngine) notAvailable() string {
	switch {
	case e.name == engineNet:
		return "not available with -engine net"
	case e.group != nil:
		return "not available with -plain"
	}
	return "not available on " + runtime.GOOS
}

// close lets the engine stop. It stops once the last listener and the last connection are gone,
// too.
func (e *serveEngine) close() {
	if e.group != nil {
		e.group.Close()
		e.adminConfig.Group.Close()
	}
}

// plural returns n and its noun.
func plural[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
