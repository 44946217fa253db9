// Package rpc serves and makes gRPC calls on the streams of package h2: it is what grpc-go's server and
// its transport do for a call, with the same codes, texts, moments and order of events.
//
//	h2 ──► Server.Accept ──► call: the header of a request is understood, or the call is refused
//	h2 ──► call.Serve ──► Server.handle ──► interceptors, handler ──► serverStream
//	                                                                   RecvMsg ► receive ► h2.Stream.Read
//	                                                                   SendMsg ► answer ► h2.Stream.Send
//
// A call is one object: the stream of h2, the handler's context, its grpc.ServerStream and its
// grpc.ServerTransportStream are four views of it.
//
// The other side:
//
//	stub ──► Client.Invoke, NewStream ──► interceptors ──► clientCall ──► attempt ──► h2.Conn.Open
//	                                                       one after the other, if calls are tried again
package rpc
