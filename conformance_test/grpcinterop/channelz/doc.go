// Package channelz tests percore under gRPC's channelz, which is on in programs that import it: a
// package of its own, since grpcadapter.Wrap is refused then.
package channelz
