// Package grpcadapter makes an unchanged grpc.Server, and an unchanged
// grpc.ClientConn, cheaper on percore than on package net.
//
// Both work on percore without it: srv.Serve takes percore.Listen's listeners,
// and grpc.WithContextDialer takes a percore.Dialer. But grpc-go does some things
// only for package net's connections, which it knows by their types. Here they
// are for percore's:
//
//   - Reading without holding a buffer. grpc-go reads through 32 KiB per
//     connection, unless it can wait for data without them. The connections of
//     [Listen], [WrapListener] and [DialOptions] have the method that grpc-go looks
//     for (see [Conn]), so that an idle connection holds no read buffer.
//   - Noticing that a peer is gone. With keep-alive parameters grpc-go sets
//     TCP_USER_TIMEOUT (tcp(7)): data that is not acknowledged in time ends the
//     connection. The adapter sets it to the same value; see [KeepaliveParams].
//   - Accepting on all loops at once; see [Serve].
//   - Reference-counted buffers from percore's pool; see [BufferPool].
//
// A server:
//
//	lis, err := grpcadapter.Listen("tcp", ":50051")
//	...
//	srv := grpc.NewServer(grpcadapter.ServerOptions()...)
//	pb.RegisterEchoServer(srv, new(echo))
//	err = grpcadapter.Serve(srv, lis) // or srv.Serve(lis)
//
// A client:
//
//	opts := append(grpcadapter.DialOptions(), grpc.WithTransportCredentials(creds))
//	cc, err := grpc.NewClient("dns:///example.com:50051", opts...)
//
// # TLS
//
// gRPC's TLS credentials put a *tls.Conn on top, which grpc-go reads through a
// buffer that it holds as long as the connection lives, on package net as here: an
// idle connection with TLS keeps grpc-go's 32 KiB (grpc.ReadBufferSize) and what
// crypto/tls has. With [Credentials] around them it keeps the latter only.
// TCP_USER_TIMEOUT, Serve and the pool work with TLS, too.
//
// # Other listeners
//
// A listener whose connections are not percore's, because they are package net's
// or because it wraps each (golang.org/x/net/netutil.LimitListener, a PROXY
// protocol), serves as usual: its connections pass through unchanged, and so
// without any of the above. The other way round is the same: what wraps this
// package's connections hides their method from grpc-go. percore.ListenConfig has
// both without a wrapper: MaxConns and OnAccept bound the connections, and with
// ProxyProtocol peer.FromContext has the address of the proxy's client.
//
// On anything but Linux, and with the build tag percore_net, Listen is net.Listen
// and the connections are package net's, for which grpc-go does all this itself.
package grpcadapter
