// Package grpcadapter makes an unchanged grpc.Server, and an unchanged
// grpc.ClientConn, cheaper on percore than on package net.
//
// Both work on percore without it: srv.Serve takes the listeners of percore.Listen, and
// grpc.WithContextDialer takes a percore.Dialer. But grpc-go does some things only for package
// net's connections, which it recognizes by their types. This package does them for percore's
// connections:
//
//   - Reading without holding a buffer. grpc-go reads through 32 KiB per
//     connection, unless it can wait for data without them. The connections of
//     [Serve] and [DialOptions] have the method that grpc-go looks for (see [Conn]),
//     so that an idle connection holds no read buffer.
//   - Noticing that a peer is gone. With keep-alive parameters grpc-go sets
//     TCP_USER_TIMEOUT (tcp(7)): data that is not acknowledged in time ends the
//     connection. The adapter sets it to the same value; see [KeepaliveParams].
//   - Accepting on all loops at once; see [Serve].
//   - Reference-counted buffers from percore's pool; see [BufferPool].
//
// A server:
//
//	lis, err := percore.Listen("tcp", ":50051")
//	...
//	srv := grpc.NewServer(grpcadapter.ServerOptions()...)
//	pb.RegisterEchoServer(srv, new(echo))
//	err = grpcadapter.Serve(srv, lis) // was srv.Serve(lis)
//
// A client:
//
//	opts := append(grpcadapter.DialOptions(), grpc.WithTransportCredentials(creds))
//	cc, err := grpc.NewClient("dns:///example.com:50051", opts...)
//
// A client for generated code past grpc-go's transport is [NewClient]'s:
//
//	conn, err := grpcadapter.NewClient("dns:///example.com:50051", grpcadapter.WithTransportCredentials(creds))
//	client := pb.NewEchoClient(conn)
//
// # Past grpc-go's transport
//
// Two kinds of servers do without grpc-go's transport: calls are served on package h2, by goroutines
// of a pool, and idle connections hold neither a goroutine nor a buffer. [Wrap] is for a grpc.Server as
// it is:
//
//	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(auth))
//	pb.RegisterEchoServer(srv, new(echo))
//	err = grpcadapter.Wrap(srv).Serve(lis) // was srv.Serve(lis)
//
// It is experimental: it needs to know private fields of grpc-go, and leaves the server to
// grpc-go's transport if it doesn't. [NewServer] needs public names only. Generated code registers
// its services with it as with a grpc.Server, and its options have the names of grpc-go's:
//
//	srv := grpcadapter.NewServer(grpcadapter.ChainUnaryInterceptor(auth))
//	pb.RegisterEchoServer(srv, new(echo))
//	err = srv.Serve(lis)
//
// Codes, texts, metadata and the order of interceptors and stats events are those of grpc-go, which
// a test compares call by call. docs/DIFFERENCES.md lists what differs.
//
// [Server.Handler] and [WrappedServer.Handler] put either on one port with HTTP/1.1 and HTTP/2, in clear
// or over TLS. The rest of this page is about grpc-go's own transport.
//
// # TLS
//
// gRPC's TLS credentials put a *tls.Conn on top. grpc-go reads it through a buffer that it holds as
// long as the connection is open, on package net too. So an idle TLS connection keeps grpc-go's 32
// KiB (grpc.ReadBufferSize) and the memory of crypto/tls. With [Credentials] around them it keeps
// only the memory of crypto/tls. TCP_USER_TIMEOUT, Serve and the pool work with TLS, too.
//
// # Other listeners
//
// A listener can return connections that are not percore's: those of package net, or wrapped ones
// (golang.org/x/net/netutil.LimitListener, a PROXY protocol). Such a listener serves as usual, but
// its connections pass through unchanged and get nothing of the above. The other way round is the
// same: a wrapper around this package's connections hides their method from grpc-go.
// percore.ListenConfig does both without a wrapper: MaxConns and OnAccept limit the connections,
// and with ProxyProtocol peer.FromContext returns the address of the proxy's client.
//
// On other systems than Linux, and with the build tag percore_net, percore's connections are package
// net's, and grpc-go does all this for them itself.
package grpcadapter
