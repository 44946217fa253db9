package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// keys are the keys under which grpc-go looks up a call's metadata, stream and peer in a context, and
// the attributes of an address that is being dialed. They are found by watching it look. With them, the
// contexts of a call and of its connection return the values themselves, and the metadata and the peer
// are made when they are first needed. If a later grpc-go keeps something else there, a key is unknown,
// and the value is in a context of its own.
var keys = findKeys()

type contextKeys struct{ metadata, stream, peer, handshake any } // nil: unknown

// observer is a context that records the last key that was looked up.
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
