// Package grpcadapter serves and makes gRPC calls past grpc-go's transport: on package h2, by goroutines
// of a pool. Connections of percore that wait hold neither a goroutine nor a buffer, in clear and over
// TLS. Messages, services, interceptors and everything else of grpc-go stay as they are.
//
// [NewServer] makes a server with which generated code registers its services, as with a grpc.Server.
// Its options have the names of grpc-go's:
//
//	lis, err := percore.Listen("tcp", ":50051")
//	...
//	srv := grpcadapter.NewServer(grpcadapter.ChainUnaryInterceptor(auth))
//	pb.RegisterEchoServer(srv, new(echo))
//	err = srv.Serve(lis)
//
// [Wrap] is for a grpc.Server as it is:
//
//	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(auth))
//	pb.RegisterEchoServer(srv, new(echo))
//	err = grpcadapter.Wrap(srv).Serve(lis) // was srv.Serve(lis)
//
// It is experimental: it needs to know private fields of grpc-go, and leaves the server to grpc-go's
// transport if it doesn't. NewServer needs public names only.
//
// [NewClient] makes a client for generated code:
//
//	conn, err := grpcadapter.NewClient("dns:///example.com:50051", grpcadapter.WithTransportCredentials(creds))
//	client := pb.NewEchoClient(conn)
//
// Codes, texts, metadata and the order of interceptors and stats events are those of grpc-go, which
// a test compares call by call. docs/DIFFERENCES.md lists what differs.
//
// [Server.Handler] and [WrappedServer.Handler] put either server on one port with HTTP/1.1 and HTTP/2,
// in clear or over TLS. [Detach] lets a stream go on when its method has returned.
//
// # Other listeners
//
// Servers take connections of any listener. One that is not percore's, or that wraps one of percore's,
// has one place to accept from, and connections of other types than percore's have a goroutine that
// reads. percore.ListenConfig does without a wrapper what most wrappers are for: MaxConns and OnAccept
// limit the connections, and with ProxyProtocol peer.FromContext returns the address of the proxy's
// client.
//
// grpc-go's own srv.Serve takes the listeners of percore.Listen, too, and grpc.WithContextDialer takes
// DialTarget of a percore.Dialer. Its transport then holds a read buffer of 32 KiB for each connection,
// which it does without on package net's.
package grpcadapter
