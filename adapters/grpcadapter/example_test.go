package grpcadapter_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/admission"
)

// A gRPC server and an http.Server share 64 places for handlers. Requests that have waited for 200 ms
// are refused; health checks take no places.
func ExampleLimitWork() {
	limiter := admission.New(admission.Limits{Handlers: 64, Wait: 200 * time.Millisecond})
	srv := grpcadapter.NewServer(grpcadapter.LimitWork(limiter, nil))
	healthpb.RegisterHealthServer(srv, health.NewServer())

	web := httpadapter.Wrap(&http.Server{Addr: ":8080"}, httpadapter.LimitWork(limiter, func(r *http.Request) bool {
		return r.URL.Path == "/healthz"
	}))
	go func() { log.Fatal(web.ListenAndServe()) }()

	lis, err := percore.Listen("tcp", ":50051")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(srv.Serve(lis))
}

// proxyCredentials gives calls what a proxy says about their client, as the AuthInfo of their peer.
type proxyCredentials struct {
	credentials.TransportCredentials
}

// proxyInfo is the AuthInfo.
type proxyInfo struct {
	credentials.AuthInfo
	TLVs []byte // for SplitTLVs of github.com/pires/go-proxyproto
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c proxyCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	return conn, proxyInfo{info, percore.ProxyTLVs(raw)}, err
}

// Clone implements [credentials.TransportCredentials].
func (c proxyCredentials) Clone() credentials.TransportCredentials {
	return proxyCredentials{c.TransportCredentials.Clone()}
}

// An interceptor reads the TLVs of the PROXY header that the call's connection began with. This example
// is not run, because it serves forever.
func Example_proxyTLVs() {
	lc := percore.ListenConfig{ProxyProtocol: &percore.ProxyProtocol{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}}
	lis, err := lc.Listen(context.Background(), "tcp", ":50051")
	if err != nil {
		log.Fatal(err)
	}
	srv := grpcadapter.NewServer(
		grpcadapter.Creds(proxyCredentials{insecure.NewCredentials()}),
		grpcadapter.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if p, ok := peer.FromContext(ctx); ok {
				log.Printf("%s: %q", p.Addr, p.AuthInfo.(proxyInfo).TLVs)
			}
			return handler(ctx, req)
		}),
	)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	log.Fatal(srv.Serve(lis))
}

// A grpc.Server as it is, with its options. Generated code and calls are the same.
func ExampleWrap() {
	lis, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 5 * time.Second}))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	served := make(chan error)
	go func() { served <- grpcadapter.Wrap(srv).Serve(lis) }()

	cc, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	reply, err := healthpb.NewHealthClient(cc).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(reply.GetStatus(), err)

	cc.Close()
	srv.GracefulStop()
	fmt.Println(<-served)
	// Output:
	// SERVING <nil>
	// <nil>
}

// A client past grpc-go's transport: generated code takes it in the place of a *grpc.ClientConn.
func ExampleNewClient() {
	lis, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := grpcadapter.NewServer()
	healthpb.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(lis) }()
	defer srv.Stop()

	conn, err := grpcadapter.NewClient("dns:///"+lis.Addr().String(),
		grpcadapter.WithTransportCredentials(insecure.NewCredentials()),
		grpcadapter.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	reply, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(reply.GetStatus(), err)
	// Output: SERVING <nil>
}

// A library that takes nothing but a *grpc.ClientConn calls through the client, too.
func ExampleClient_ClientConn() {
	lis, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := grpcadapter.NewServer()
	healthpb.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(lis) }()
	defer srv.Stop()

	client, err := grpcadapter.NewClient(lis.Addr().String(), grpcadapter.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	var conn *grpc.ClientConn = client.ClientConn()
	defer conn.Close() // closes the client, too
	reply, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(reply.GetStatus(), err)
	// Output: SERVING <nil>
}

// A server past grpc-go's transport: generated code registers its services with it.
func ExampleNewServer() {
	srv := grpcadapter.NewServer(
		grpcadapter.MaxRecvMsgSize(16<<20),
		grpcadapter.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			fmt.Println(info.FullMethod)
			return handler(ctx, req)
		}),
	)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	lis, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- srv.Serve(lis) }()

	cc, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	reply, err := healthpb.NewHealthClient(cc).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(reply.GetStatus(), err)

	cc.Close()
	srv.GracefulStop()
	fmt.Println(<-served)
	// Output:
	// /grpc.health.v1.Health/Check
	// SERVING <nil>
	// <nil>
}
