package rpc

import (
	"reflect"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/protoadapt"
)

// A Codec is an encoding.CodecV2, which need not have a name.
type Codec interface {
	Marshal(v any) (mem.BufferSlice, error)
	Unmarshal(data mem.BufferSlice, v any) error
}

// codecFor returns the codec of a content-type, or the protobuf codec if no codec is registered for it.
func codecFor(subtype string) Codec {
	if subtype == "" {
		return codecOf(proto.Name)
	}
	if c := codecOf(subtype); c != nil {
		return c
	}
	logger.Warningf("Unsupported codec %q. Defaulting to %q for now. This will start to fail in future releases.", subtype, proto.Name)
	return codecOf(proto.Name)
}

// codecOf returns a registered codec, or nil. As in grpc-go, it prefers an old codec.
func codecOf(name string) Codec {
	if c := encoding.GetCodec(name); c != nil {
		return OldCodec{c}
	}
	if c := encoding.GetCodecV2(name); c != nil {
		return c
	}
	return nil
}

// OldCodec is a codec that encodes a message in one piece.
type OldCodec struct {
	Of interface {
		Marshal(v any) ([]byte, error)
		Unmarshal(data []byte, v any) error
	}
}

// Marshal implements Codec.
func (c OldCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, err := c.Of.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal implements Codec.
func (c OldCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return c.Of.Unmarshal(data.Materialize(), v)
}

// protobufCodec is the type of grpc-go's own codec for protobuf; nil if another package has taken its
// place before this variable was set.
var protobufCodec = func() reflect.Type {
	t := reflect.TypeOf(encoding.GetCodecV2(proto.Name))
	if t.Kind() != reflect.Pointer || t.Elem().PkgPath() != "google.golang.org/grpc/encoding/proto" {
		return nil
	}
	return t
}()

// isProtobuf reports whether c is grpc-go's own codec for protobuf: other codecs may encode messages
// differently, or inspect them.
func isProtobuf(c Codec) bool { return protobufCodec != nil && reflect.TypeOf(c) == protobufCodec }

// protoMessage returns v as a protobuf message, or nil if it isn't one.
func protoMessage(v any) protoadapt.MessageV2 {
	switch v := v.(type) {
	case protoadapt.MessageV2:
		return v
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(v)
	}
	return nil
}
