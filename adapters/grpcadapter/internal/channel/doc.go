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
//   - A resolution implements resolver.ClientConn for one resolver. A queue calls the resolver's
//     methods one after the other; its goroutine lives as long as there is work.
//   - A policy is pick_first, with one leaf for all addresses, or round_robin, with a leaf per
//     endpoint. It derives the state of the channel and a picker from the states of its leaves. A
//     policy that replaces another works beside it until it is connected or has failed.
//   - A leaf connects to the first of its addresses that answers (pick_first of gRFC A61 and A62).
//   - A subchannel connects to one address, again and again with a backoff.
//   - A [Link] is one attempt to connect, and the connection that it makes.
//   - A picker is immutable, and is replaced as a whole: Pick loads one pointer.
//
// One mutex guards all of this. Methods of other packages (Conn, resolver.Resolver) are called after
// the mutex has been released, so they may call the channel. Config.OnServiceConfig, Config.Policy
// and the function passed to Watch are called with it held, so they must not.
//
// Differences from grpc-go's ClientConn:
//
//   - It looks for no proxy in the environment, and reports nothing to channelz.
//   - An idle channel lets its connections, which have no calls, end in order. grpc-go aborts them.
//   - It waits after a useless connection, as after a failure: see leaf.ended.
//   - An endpoint without addresses fails. In grpc-go it stays CONNECTING.
package channel
