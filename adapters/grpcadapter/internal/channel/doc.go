// Package channel is the part of a gRPC client between the name of a target and its connections: it
// resolves the name, connects to the addresses, and picks a connection for each call. Around grpc-go's
// resolvers and load balancing policies it does what grpc-go's ClientConn does, with the same states,
// texts and moments.
//
//	resolver ─► resolution ─► policy ─► subchannel ─► Link ─► Config.Dial
//	Pick ◄─ picker ◄─────────┘
//
// The parts:
//
//   - A [Channel] starts idle. The first Pick, or Connect, builds the resolver. After IdleTimeout
//     without a call the resolver and the connections are closed again.
//   - A resolution implements resolver.ClientConn for one resolver.
//   - A policy implements balancer.ClientConn for pick_first or round_robin. One that replaces another
//     works beside it until it is connected or has failed.
//   - A subchannel implements balancer.SubConn: it connects to one address, again and again with a
//     backoff. A rest slows it down if the server ends each connection at once.
//   - A [Link] is one attempt to connect, and the connection that it makes.
//   - A picker is immutable, and is replaced as a whole: Pick loads one pointer.
//
// One mutex guards all of this. A policy has a mutex of its own, which it holds when it calls the
// channel. So methods of other packages (Conn, resolver.Resolver, balancer.Balancer) are called without
// the channel's mutex. One queue calls those of the resolver one after the other, and another queue
// those of the policies; the goroutine of a queue lives as long as there is work.
// Config.OnServiceConfig, Config.Policy, Config.HealthCheck and the function passed to Watch are called
// with the mutex held, so they must not call the channel.
//
// Differences from grpc-go's ClientConn:
//
//   - It looks for no proxy in the environment, and reports nothing to channelz.
//   - An idle channel lets its connections, which have no calls, end in order. grpc-go aborts them.
//   - It waits after a useless connection, as after a failure: see rest.
//   - An endpoint without addresses is left out. In grpc-go it stays CONNECTING.
package channel
