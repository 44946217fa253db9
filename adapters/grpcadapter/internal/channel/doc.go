// Package channel is the part of a gRPC client between the name of a target and its connections: it
// resolves the name, connects to the addresses, and picks a connection for each call. It does what
// grpc-go's ClientConn does, with the same states, texts and moments.
//
//	resolver ─► resolution ─► policy ─► leaf ─► subchannel ─► Link ─► Config.Dial
//	Pick ◄─ picker ◄─────────┘
//
// The parts:
//
//   - A [Channel] starts idle. The first Pick, or Connect, builds the resolver. After IdleTimeout
//     without a call the resolver and the connections are closed again.
//   - A resolution implements resolver.ClientConn for one resolver. The methods of the resolver are
//     called one after the other by a queue, whose goroutine lives as long as there is work.
//   - A policy is pick_first, with one leaf for all addresses, or round_robin, with a leaf per
//     endpoint. It makes the state of the channel and a picker out of the states of its leaves. A
//     policy that replaces another works beside it until it is connected or has failed.
//   - A leaf connects to the first of its addresses that answers (pick_first of gRFC A61 and A62).
//   - A subchannel connects to one address, again and again with a backoff.
//   - A [Link] is one attempt to connect, and the connection that it makes.
//   - A picker is immutable, and is replaced as a whole: Pick loads one pointer.
//
// One mutex guards all of it. Methods of others (Conn, resolver.Resolver) are called after the mutex
// has been released, so they may call the channel. Config.OnServiceConfig, Config.Policy and the
// function of Watch are called under it, so they must not.
//
// It differs from grpc-go's ClientConn in these points:
//
//   - It looks for no proxy in the environment, and reports nothing to channelz.
//   - Idleness lets connections end where grpc-go aborts them. They have no calls.
//   - Connections that are of no use make it wait, as failures do: see leaf.ended.
//   - An endpoint without addresses fails. In grpc-go it stays CONNECTING.
package channel
