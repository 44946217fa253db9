package grpcadapter

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

var _ httpadapter.StreamHandler = (*streamPortHandler)(nil)

// onePort is a ownServer and an http.Server on one port.
type onePort struct {
	ownServer
	web interface {
		Serve(net.Listener) error
		ServeTLS(net.Listener, string, string) error
		Shutdown(context.Context) error
		Close() error
	}
	secure bool
}

// portWays are the ways in which calls reach a Server on a port of HTTP.
var portWays = []struct {
	name   string
	listen testnet.ListenFunc
	past   bool // calls go past net/http
	make   func(*http.Server) *onePort
}{
	{"streams", percore.Listen, !connsAreNets, func(srv *http.Server) *onePort {
		return &onePort{web: httpadapter.Wrap(srv)}
	}},
	{"middleware", percore.Listen, false, func(srv *http.Server) *onePort {
		within := srv.Handler
		srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { within.ServeHTTP(w, r) })
		return &onePort{web: httpadapter.Wrap(srv)}
	}},
	{"net/http", net.Listen, false, func(srv *http.Server) *onePort { return &onePort{web: srv} }},
}

// newPort makes a server for one of portWays.
func newPort(way int, own ownServer, config *tls.Config) *onePort {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s over %s", r.URL.Path, r.Proto) })
	srv := &http.Server{Handler: own.Handler(mux), TLSConfig: config, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	p := portWays[way].make(srv)
	p.ownServer, p.secure = own, config != nil
	return p
}

func (p *onePort) Serve(lis net.Listener) (err error) {
	if p.secure {
		err = p.web.ServeTLS(lis, "", "")
	} else {
		err = p.web.Serve(lis)
	}
	if err == http.ErrServerClosed {
		return nil
	}
	return err
}

func (p *onePort) GracefulStop() {
	_ = p.web.Shutdown(context.Background())
	p.ownServer.GracefulStop()
}

func (p *onePort) Stop() {
	_ = p.web.Close()
	p.ownServer.Stop()
}

// startPort serves echo on lis until the test ends.
func startPort(t testing.TB, way int, lis net.Listener, config *tls.Config, own ownServer) *onePort {
	t.Helper()
	own.RegisterService(&echo, nil)
	p := newPort(way, own, config)
	serveOn(t, lis, p)
	return p
}

// eachPort runs a test for each way, each kind of server, and connections in clear and over TLS.
func eachPort(t *testing.T, test func(t *testing.T, way int, kind serverKind, server, client *tls.Config)) {
	for way := range portWays {
		for _, kind := range serverKinds[1:] {
			for _, secure := range []bool{false, true} {
				name := portWays[way].name + "/" + kind.name
				if secure {
					name += "/TLS"
				}
				t.Run(name, func(t *testing.T) {
					testnet.NoLeaks(t)
					var server, client *tls.Config
					if secure {
						server, client = testnet.TLS(t)
					}
					test(t, way, kind, server, client)
				})
			}
		}
	}
}

// credsFor returns the credentials of a client.
func credsFor(config *tls.Config) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(config)
}

// connLog notes the events of connections, and keeps the peers of calls.
type connLog struct {
	noStats
	noted
	peers chan *peer.Peer
}

func (l *connLog) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	l.add(fmt.Sprintf("tag %v", info.RemoteAddr != nil && info.LocalAddr != nil))
	return context.WithValue(ctx, statsKey("conn"), "tagged")
}

func (l *connLog) HandleConn(ctx context.Context, e stats.ConnStats) {
	l.add(fmt.Sprintf("%T %v", e, ctx.Value(statsKey("conn"))))
}

func (l *connLog) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	p, _ := peer.FromContext(ctx)
	l.peers <- p
	return ctx
}

// TestOnePort makes calls of each kind, and requests over HTTP/1.1 and HTTP/2, on one port.
func TestOnePort(t *testing.T) {
	eachPort(t, func(t *testing.T, way int, kind serverKind, server, client *tls.Config) {
		lis := testnet.Listen(t, portWays[way].listen, testnet.TCP4)
		log := &connLog{peers: make(chan *peer.Peer, 100)}
		p := startPort(t, way, lis, server, kind.makeWatched(log))
		get(t, lis, client, false)
		get(t, lis, client, true)
		if events := log.take(); len(events) > 0 {
			t.Errorf("connections without a call have had the events %q", events)
		}

		cc := dialServer(t, lis, grpc.WithTransportCredentials(credsFor(client)))
		calls := exercise(t, cc)
		cc.Close()
		testnet.Within(t, "GracefulStop", p.GracefulStop)

		want := []string{"tag true", "*stats.ConnBegin tagged", "*stats.ConnEnd tagged"}
		if !portWays[way].past {
			want = slices.Repeat(want, calls)
		}
		if events := log.take(); !slices.Equal(events, want) {
			t.Errorf("got the events %q of connections, want %q", events, want)
		}
		for range calls {
			p := <-log.peers
			info, secure := p.AuthInfo.(credentials.TLSInfo)
			if p.Addr == nil || p.LocalAddr == nil || secure != (server != nil) {
				t.Errorf("got the peer %v", p)
			}
			if secure && (!info.State.HandshakeComplete || info.SecurityLevel != credentials.PrivacyAndIntegrity) {
				t.Errorf("got the state of TLS %+v", info)
			}
		}
	})
}

// get makes a request over HTTP/1.1 or HTTP/2.
func get(t *testing.T, lis net.Listener, config *tls.Config, two bool) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
	defer tr.CloseIdleConnections()
	scheme, want := "http", "/x over HTTP/1.1"
	if two {
		want = "/x over HTTP/2.0"
	}
	if config != nil {
		scheme = "https"
		tr.TLSClientConfig = config.Clone()
	}
	tr.Protocols.SetHTTP1(!two)
	tr.Protocols.SetHTTP2(two)
	tr.Protocols.SetUnencryptedHTTP2(two)
	resp, err := (&http.Client{Transport: tr}).Get(scheme + "://" + lis.Addr().String() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); string(b) != want || err != nil {
		t.Errorf("got %q, %v, want %q", b, err, want)
	}
}

// TestOnePortDiffers makes random calls to a grpc.Server, and to Servers on ports of HTTP.
func TestOnePortDiffers(t *testing.T) {
	for _, settings := range settingsCases {
		t.Run(settings.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			seed := rand.Uint64()
			calls := randomCalls(seed, 25)
			play := func(log *callLog, listen testnet.ListenFunc, srv testServer) []string {
				return playCalls(t, listen, srv, log, calls, func(lis net.Listener) differingClient { return dialServer(t, lis) })
			}
			wantLog := newCallLog()
			want := play(wantLog, net.Listen, grpc.NewServer(settings.go_(wantLog)...))
			for way := range portWays {
				for _, kind := range serverKinds[1:] {
					log := newCallLog()
					log.own = kind.name == "NewServer"
					server := kind.makeOwn(settings.go_(log), settings.own(log))
					got := play(log, portWays[way].listen, newPort(way, server, nil))
					if !portWays[way].past { // each call is a connection then, whose end comes late
						log = log.copied()
						log.lines["none"] = wantLog.lines["none"]
					}
					compareLogs(t, fmt.Sprintf("%s, %s, seed %d", portWays[way].name, kind.name, seed), calls, got, want, log, wantLog)
				}
			}
		})
	}
}

// TestOnePortShutdown: the http.Server's Shutdown waits for a call, and its client makes no new one.
func TestOnePortShutdown(t *testing.T) {
	eachPort(t, func(t *testing.T, way int, kind serverKind, server, client *tls.Config) {
		lis := testnet.Listen(t, portWays[way].listen, testnet.TCP4)
		p := startPort(t, way, lis, server, kind.makeWatched())
		cc := dialServer(t, lis, grpc.WithTransportCredentials(credsFor(client)))
		ctx := callContext(t)
		stream := startChat(t, cc)
		stopped := make(chan bool)
		go func() { p.GracefulStop(); close(stopped) }()
		testnet.Eventually(t, "the end of new calls", func() bool { return callUnary(ctx, cc, nil) != nil })
		if err := say(stream, pattern(70<<10)); err != nil {
			t.Errorf("a call that is open: %v", err)
		}
		select {
		case <-stopped:
			t.Error("Shutdown has returned before the call's end")
		default:
		}
		endChat(t, stream)
		testnet.Receive(t, "GracefulStop", stopped)
	})
}

// TestOnePortStop: GracefulStop of the Server alone refuses calls and waits for those that are open;
// Stop ends them. HTTP goes on.
func TestOnePortStop(t *testing.T) {
	eachPort(t, func(t *testing.T, way int, kind serverKind, server, client *tls.Config) {
		lis := testnet.Listen(t, portWays[way].listen, testnet.TCP4)
		p := startPort(t, way, lis, server, kind.makeWatched())
		cc := dialServer(t, lis, grpc.WithTransportCredentials(credsFor(client)))
		stream := startChat(t, cc)
		stopped := make(chan bool, 2)
		go func() { p.ownServer.GracefulStop(); stopped <- true }()
		testnet.Eventually(t, "calls being refused", func() bool {
			return status.Code(callUnary(callContext(t), cc, nil)) == codes.Unavailable
		})
		if err := say(stream, pattern(10)); err != nil {
			t.Errorf("a call that is open: %v", err)
		}
		get(t, lis, client, true)
		go func() { p.ownServer.Stop(); stopped <- true }()
		testnet.Receive(t, "Stop", stopped)
		testnet.Receive(t, "GracefulStop", stopped)
		if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err == nil || err == io.EOF {
			t.Errorf("a call that was open: got %v", err)
		}
		get(t, lis, client, true)
		get(t, lis, client, false)
		testnet.Eventually(t, "no call being open", func() bool { return p.Stats().Calls == 0 })
	})
}

// TestOnePortPings: the policy counts for connections with calls, and only for them.
func TestOnePortPings(t *testing.T) {
	if !portWays[0].past {
		t.Skip("connections are net/http's here: run it on Linux, without the build tag percore_net")
	}
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	startPort(t, 0, lis, nil, NewServer(KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{})))
	p := framePeer(t, lis)
	for range 20 {
		p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush().Want("pong 0000000000000000")
	}
	p.Headers(1, false, ":method", "POST", ":scheme", "http", ":path", "/percore.test.Echo/Unary", ":authority", "h", "content-type", "application/grpc")
	p.Data(1, goodMessage, true).Flush()
	for line := p.Next(); !strings.HasSuffix(line, " end"); line = p.Next() {
	}
	for range 3 {
		p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush().Want("pong 0000000000000000")
	}
	p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush()
	p.Want("pong 0000000000000000", `goaway 1 ENHANCE_YOUR_CALM "too_many_pings"`, "end")
}

// TestOnePortFrames plays requests, good and bad, to Servers with and without a port of HTTP.
func TestOnePortFrames(t *testing.T) {
	if !portWays[0].past {
		t.Skip("connections are net/http's here: run it on Linux, without the build tag percore_net")
	}
	testnet.NoLeaks(t)
	own, port := serveEcho(t), testnet.Listen(t, percore.Listen, testnet.TCP4)
	startPort(t, 0, port, nil, NewServer())
	for _, call := range frameCalls {
		if strings.Contains(call.name, "content-type") {
			continue // it is for the http.Server
		}
		t.Run(call.name, func(t *testing.T) { call.compare(t, []serving{{own, "alone"}, {port, "on the port"}}) })
	}
	if got := (frameCall{fields: []string{"content-type=application/grpc-web"}}).play(t, port); !strings.Contains(got, ":status=200") || strings.Contains(got, "grpc-status") {
		t.Errorf("gRPC-Web: got the frames\n%s\nwant those of the http.Server's handler", got)
	}
}

// TestOnePortPanic: a handler that panics ends its call, and the program goes on.
func TestOnePortPanic(t *testing.T) {
	eachPort(t, func(t *testing.T, way int, kind serverKind, server, client *tls.Config) {
		lis := testnet.Listen(t, portWays[way].listen, testnet.TCP4)
		own := kind.makeWatched()
		own.RegisterService(&echo, nil)
		own.RegisterService(&grpc.ServiceDesc{ServiceName: "panic", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
			StreamName: "Panic", ClientStreams: true, Handler: func(any, grpc.ServerStream) error { panic(http.ErrAbortHandler) },
		}}}, nil)
		serveOn(t, lis, newPort(way, own, server))
		cc := dialServer(t, lis, grpc.WithTransportCredentials(credsFor(client)))
		err := cc.Invoke(callContext(t), "/panic/Panic", new(wrapperspb.BytesValue), new(wrapperspb.BytesValue))
		if status.Code(err) != codes.Internal {
			t.Errorf("got %v", err)
		}
		if err := callUnary(callContext(t), cc, pattern(10)); err != nil {
			t.Errorf("a call afterwards: %v", err)
		}
		testnet.Eventually(t, "the end of both calls", func() bool { s := own.Stats(); return s.Calls == 0 && s.Ended[codes.Internal] == 1 })
	})
}

// endPanicker is a stats handler that panics at the end of a call.
type endPanicker struct{ noStats }

func (*endPanicker) HandleRPC(_ context.Context, e stats.RPCStats) {
	if _, ok := e.(*stats.End); ok {
		panic(http.ErrAbortHandler)
	}
}

// TestOnePortDetachedPanic: a panic at the end of a detached call leaves nothing of the call behind.
func TestOnePortDetachedPanic(t *testing.T) {
	if !portWays[0].past {
		t.Skip("off Linux and with the tag percore_net the method waits for the end of the call: run it on Linux without")
	}
	testnet.NoLeaks(t)
	w := newWatches(t)
	own := NewServer(StatsHandler(new(endPanicker)))
	own.RegisterService(w.desc(), nil)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	startPort(t, 0, lis, nil, own)
	client := w.open(callContext(t), dialServer(t, lis), "key")
	w.stream("key").Close()
	if got := next(client); got != statusText(io.EOF) {
		t.Errorf("got %s", got)
	}
	if err := w.ended("key"); err != errPanicked {
		t.Errorf("OnEnd got %v", err)
	}
	testnet.Eventually(t, "no calls", func() bool { return own.Stats().Calls == 0 && own.Stats().Detached == 0 })
}

// TestOnePortRefused: calls are served by grpc-go's ServeHTTP if the server can't be served past
// its transport, and a line says why. Stop ends them.
func TestOnePortRefused(t *testing.T) {
	for way := range portWays {
		t.Run(portWays[way].name, func(t *testing.T) {
			testnet.NoLeaks(t)
			var lines []string
			log := func(w *wrapping) {
				w.logf = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
			}
			srv := grpc.NewServer(grpc.WaitForHandlers(true)) // which Wrap refuses
			server := wrapped{wrap(srv, log), srv}
			lis := testnet.Listen(t, portWays[way].listen, testnet.TCP4)
			startPort(t, way, lis, nil, server)
			cc := dialServer(t, lis)
			if err := callUnary(callContext(t), cc, pattern(5000)); err != nil {
				t.Errorf("a call: %v", err)
			}
			get(t, lis, nil, false)
			get(t, lis, nil, true)
			if len(lines) != 1 || server.Stats().Started != 0 || server.Refusal() == nil {
				t.Errorf("got the lines %q, %+v, and the reason %v", lines, server.Stats(), server.Refusal())
			}
			stream := startChat(t, cc)
			stopped := make(chan bool)
			go func() { srv.Stop(); close(stopped) }()
			testnet.Receive(t, "Stop", stopped)
			if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err == nil || err == io.EOF {
				t.Errorf("a call that was open: got %v", err)
			}
		})
	}
}

// TestOnePortStopped: a grpc.Server that was stopped before the http.Server serves takes no calls.
func TestOnePortStopped(t *testing.T) {
	for way := range portWays {
		t.Run(portWays[way].name, func(t *testing.T) {
			testnet.NoLeaks(t)
			server := newWrapped(nil)
			server.Stop()
			lis := testnet.Listen(t, portWays[way].listen, testnet.TCP4)
			serveOn(t, lis, newPort(way, server, nil))
			if err := callUnary(callContext(t), dialServer(t, lis), nil); status.Code(err) != codes.Unavailable {
				t.Errorf("a call: got %v", err)
			}
			get(t, lis, nil, true)
		})
	}
}

// BenchmarkOnePort makes unary calls on one connection, 64 at a time: to a Server's own port, and to
// ports of HTTP, where they come by streams or through net/http's types. The client takes most of the
// time; compare with what "own" takes.
func BenchmarkOnePort(b *testing.B) {
	calls := func(b *testing.B, listen testnet.ListenFunc, start func(net.Listener)) {
		lis := testnet.Listen(b, listen, testnet.TCP4)
		start(lis)
		cc, ctx, message := dialServer(b, lis), callContext(b), pattern(128)
		b.ReportAllocs()
		b.SetParallelism(64)
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := callUnary(ctx, cc, message); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.Run("own", func(b *testing.B) {
		calls(b, percore.Listen, func(lis net.Listener) { startOwn(b, lis) })
	})
	for way := range portWays {
		b.Run(portWays[way].name, func(b *testing.B) {
			calls(b, portWays[way].listen, func(lis net.Listener) { startPort(b, way, lis, nil, NewServer()) })
		})
	}
}
