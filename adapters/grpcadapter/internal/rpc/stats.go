package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
)

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
