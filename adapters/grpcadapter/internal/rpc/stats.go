package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
)

// combineStats makes one handler of several, which are called in their order; nil: there are none.
func combineStats(all []stats.Handler) stats.Handler {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return statsHandlers(all)
}

type statsHandlers []stats.Handler

// TagConn implements [stats.Handler].
func (all statsHandlers) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	for _, h := range all {
		ctx = h.TagConn(ctx, info)
	}
	return ctx
}

// HandleConn implements [stats.Handler].
func (all statsHandlers) HandleConn(ctx context.Context, e stats.ConnStats) {
	for _, h := range all {
		h.HandleConn(ctx, e)
	}
}

// TagRPC implements [stats.Handler].
func (all statsHandlers) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	for _, h := range all {
		ctx = h.TagRPC(ctx, info)
	}
	return ctx
}

// HandleRPC implements [stats.Handler].
func (all statsHandlers) HandleRPC(ctx context.Context, e stats.RPCStats) {
	for _, h := range all {
		h.HandleRPC(ctx, e)
	}
}

// payload is a message for the stats handler: its length before it was compressed, and as it is sent.
type payload struct {
	message                  any
	length, compressedLength int
}

// sent counts a message that was sent, and reports it to sh unless that is nil.
func (p payload) sent(on *counts, sh stats.Handler, ctx context.Context, client bool) {
	on.Add(countSent, 1)
	if sh != nil {
		sh.HandleRPC(ctx, &stats.OutPayload{
			Client: client, Payload: p.message, Length: p.length, CompressedLength: p.compressedLength,
			WireLength: p.compressedLength + headBytes, SentTime: time.Now(),
		})
	}
}

// received is sent for a message that was received.
func (p payload) received(on *counts, sh stats.Handler, ctx context.Context, client bool) {
	on.Add(countReceived, 1)
	if sh != nil {
		sh.HandleRPC(ctx, &stats.InPayload{
			Client: client, Payload: p.message, Length: p.length, CompressedLength: p.compressedLength,
			WireLength: p.compressedLength + headBytes, RecvTime: time.Now(),
		})
	}
}
