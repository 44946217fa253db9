// Package grpcadapter serves and makes gRPC calls with package h2 and pooled goroutines instead of
// grpc-go's transport. percore connections that wait hold neither a goroutine nor a buffer, in
// cleartext and over TLS. Messages, services, interceptors and everything else from grpc-go stay as
// they are.
//
// [NewServer] makes a server. Generated code registers its services with it as with a grpc.Server,
// and the options have the same names as in grpc-go:
//
//	lis, err := percore.Listen("tcp", ":50051")
//	...
//	srv := grpcadapter.NewServer(grpcadapter.ChainUnaryInterceptor(auth))
//	pb.RegisterEchoServer(srv, new(echo))
//	err = srv.Serve(lis)
//
// [Wrap] serves an existing grpc.Server:
//
//	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(auth))
//	pb.RegisterEchoServer(srv, new(echo))
//	err = grpcadapter.Wrap(srv).Serve(lis) // was srv.Serve(lis)
//
// Wrap is experimental: it depends on private fields of grpc-go, and leaves the server to grpc-go's
// transport if they have changed. NewServer uses only public names.
//
// [NewClient] makes a client for generated code:
//
//	conn, err := grpcadapter.NewClient("dns:///example.com:50051", grpcadapter.WithTransportCredentials(creds))
//	client := pb.NewEchoClient(conn)
//
// Codes, texts, metadata and the order of interceptors and stats events are the same as with
// grpc-go; a test compares them call by call. docs/DIFFERENCES.md lists what differs.
//
// [Server.Handler] and [WrappedServer.Handler] put either server on one port with HTTP/1.1 and
// HTTP/2, in cleartext or over TLS. [Detach] lets a stream go on after its method has returned.
//
// # Other listeners
//
// Servers take connections from any listener. If the listener is not percore's, or wraps one of
// percore's, a single goroutine accepts from it. A connection of any type but percore's has a
// goroutine that reads. Most wrappers are not needed, because percore.ListenConfig does what they
// are for: MaxConns and OnAccept limit the connections, and with ProxyProtocol peer.FromContext
// returns the address of the proxy's client.
//
// grpc-go's own srv.Serve accepts percore's listeners too, and grpc.WithContextDialer accepts the
// method DialTarget of a percore.Dialer. grpc-go's transport then holds a read buffer of 32 KiB for
// each connection, which it doesn't need on connections of package net.
package grpcadapter
