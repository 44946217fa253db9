package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// keys are those under which grpc-go looks for a call's metadata, stream and peer in a context, and
// for the attributes of an address that is being connected to. They are found by looking while it
// looks. With them the contexts of a call and of its connection have the values themselves, instead of
// more contexts around them, and the metadata and the peer are made when they are first asked for.
// Without them, if grpc-go should keep something else there some day, such contexts are made.
var keys = findKeys()

type contextKeys struct{ metadata, stream, peer, handshake any } // nil: unknown

// observer is a context that remembers what it was asked for.
type observer struct {
	context.Context
	key, value any
}

// Value implements [context.Context].
func (o *observer) Value(key any) any {
	o.key = key
	return o.value
}

func findKeys() (found contextKeys) {
	o := &observer{Context: context.Background()}
	metadata.FromIncomingContext(o)
	o.value = metadata.MD{"k": {"v"}}
	if md, ok := metadata.FromIncomingContext(o); ok && len(md["k"]) == 1 && md["k"][0] == "v" {
		found.metadata = o.key
	}
	o = &observer{Context: context.Background()}
	want := grpc.ServerTransportStream(struct{ grpc.ServerTransportStream }{})
	o.value = want
	if grpc.ServerTransportStreamFromContext(o) == want {
		found.stream = o.key
	}
	o = &observer{Context: context.Background(), value: new(peer.Peer)}
	if p, ok := peer.FromContext(o); ok && p == o.value {
		found.peer = o.key
	}
	o = &observer{Context: context.Background()}
	_ = credentials.ClientHandshakeInfoFromContext(o)
	found.handshake = o.key
	return found
}
