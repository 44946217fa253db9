// Package rpc serves and makes gRPC calls on the streams of package h2. It does what grpc-go's
// server and transport do for a call, with the same codes, texts, timing and order of events.
//
//	h2 ──► Server.Accept ──► call: the header of a request is understood, or the call is refused
//	h2 ──► call.Serve ──► Server.handle ──► interceptors, handler ──► serverStream
//	                                                                   RecvMsg ► receive ► h2.Stream.Read
//	                                                                   SendMsg ► answer ► h2.Stream.Send
//
// A call is one object: h2's stream, the handler's context, its grpc.ServerStream and its
// grpc.ServerTransportStream are four views of it.
//
// On the client side:
//
//	stub ──► Client.Invoke, NewStream ──► interceptors ──► clientCall ──► attempt ──► h2.Conn.Open
//	                                                       one after the other, if calls are tried again
package rpc
