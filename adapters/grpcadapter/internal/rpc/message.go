package rpc

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/percore/percore/adapters/h2"
)

// headBytes is the length of what is before a message: a byte that says whether it is compressed,
// and four for its length.
const headBytes = 5

// appendHead appends the head of a message.
func appendHead(to []byte, compressed bool, length int) []byte {
	flag := byte(0)
	if compressed {
		flag = 1
	}
	return binary.BigEndian.AppendUint32(append(to, flag), uint32(length))
}

// codec returns the codec of a content-type.
func (s *Server) codec(subtype string) Codec {
	if s.config.Codec != nil {
		return s.config.Codec
	}
	if subtype == "" {
		return codecOf(proto.Name)
	}
	if c := codecOf(subtype); c != nil {
		return c
	}
	logger.Warningf("Unsupported codec %q. Defaulting to %q for now. This will start to fail in future releases.", subtype, proto.Name)
	return codecOf(proto.Name)
}

// codecOf returns a registered codec, or nil. One of the old kind goes first, as in grpc-go.
func codecOf(name string) Codec {
	if c := encoding.GetCodec(name); c != nil {
		return OldCodec{c}
	}
	if c := encoding.GetCodecV2(name); c != nil {
		return c
	}
	return nil
}

// OldCodec is a codec whose messages are in one piece.
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

// isProtobuf reports whether c is grpc-go's own codec for protobuf: another one may encode messages in
// another way, or look at them.
func isProtobuf(c Codec) bool { return protobufCodec != nil && reflect.TypeOf(c) == protobufCodec }

// protoMessage returns a message of protobuf, or nil if v is something else.
func protoMessage(v any) protoadapt.MessageV2 {
	switch v := v.(type) {
	case protoadapt.MessageV2:
		return v
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(v)
	}
	return nil
}

// marshalError is the status of a message that can't be encoded.
func marshalError(err error) error {
	return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err.Error())
}

// marshal returns the bytes of a message.
func (c *call) marshal(v any) (mem.BufferSlice, error) {
	if v == nil {
		return nil, nil
	}
	if prepared, ok := v.(*grpc.PreparedMsg); ok {
		return c.prepared(prepared)
	}
	b, err := c.messages.codec.Marshal(v)
	if err != nil {
		return nil, marshalError(err)
	}
	if n := uint(b.Len()); n > math.MaxUint32 {
		b.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: message too large (%d bytes)", n)
	}
	return b, nil
}

// prepared returns the bytes of a message that was marshaled before. If it was compressed as well,
// that is done again.
func (c *call) prepared(v *grpc.PreparedMsg) (mem.BufferSlice, error) {
	if look := c.conn.server.config.Prepared; look != nil {
		if b, ok := look(v); ok {
			return b, nil
		}
	}
	return nil, status.Error(codes.Internal, "grpcadapter: a grpc.PreparedMsg can't be sent by this server")
}

// compress returns data compressed, and whether it was: nothing is not.
func (c *call) compress(data mem.BufferSlice) (_ mem.BufferSlice, done bool, err error) {
	if c.messages.compressor == nil || data.Len() == 0 {
		return nil, false, nil
	}
	var out mem.BufferSlice // an allocation, which other messages don't need
	w, err := c.messages.compressor.Compress(mem.NewWriter(&out, c.conn.server.config.Pool))
	for i := 0; i < len(data) && err == nil; i++ {
		_, err = w.Write(data[i].ReadOnlyData())
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		out.Free()
		return nil, false, status.Errorf(codes.Internal, "grpc: error while compressing: %v", err.Error())
	}
	return out, true, nil
}

// receive reads the next message, and decompresses it. compressedBytes is its length before that.
func (c *call) receive() (data mem.BufferSlice, compressedBytes int, err error) {
	head := c.messages.head[:]
	if err := c.readFull(head); err != nil {
		return nil, 0, err
	}
	length, most := binary.BigEndian.Uint32(head[1:]), c.conn.server.config.RecvBytesMax
	switch {
	case int64(length) > math.MaxInt:
		return nil, 0, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max length allowed on current machine (%d vs. %d)", length, math.MaxInt)
	case int(length) > most:
		return nil, 0, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", length, most)
	}
	compressed := head[0]
	if data, err = c.readMessage(int(length)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, 0, err
	}
	if err := c.checkCompressed(compressed); err != nil {
		data.Free()
		return nil, 0, err
	}
	if compressed == 0 {
		return data, int(length), nil
	}
	defer data.Free()
	out, err := c.decompress(data, most)
	return out, int(length), err
}

// checkCompressed returns an error if the flag before a message is wrong.
func (c *call) checkCompressed(flag byte) error {
	switch {
	case flag > 1:
		return status.Errorf(codes.Internal, "grpc: received unexpected payload format %d", flag)
	case flag == 1 && (c.encoding == "" || c.encoding == encoding.Identity):
		return status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	}
	return nil
}

// decompress returns data decompressed, of which at most a number of bytes may come.
func (c *call) decompress(data mem.BufferSlice, most int) (mem.BufferSlice, error) {
	from := data.Reader()
	r, err := c.messages.decompressor.Decompress(from)
	if err != nil {
		_ = from.Close()
		return nil, status.Errorf(codes.Internal, "grpc: failed to decompress the message: %v", err)
	}
	if closer, ok := r.(io.Closer); ok {
		defer closer.Close()
	}
	if int64(most) < math.MaxInt64 {
		r = io.LimitReader(r, int64(most)+1)
	}
	out, err := mem.ReadAll(r, c.conn.server.config.Pool)
	switch {
	case err != nil:
		err = status.Errorf(codes.Internal, "grpc: failed to read decompressed data: %v", err)
	case out.Len() > most:
		err = status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", most)
	default:
		return out, nil
	}
	_ = from.Close()
	out.Free()
	return nil, err
}

// The memory of a message grows as its bytes come. Otherwise the five bytes that announce its length
// could make a server take the memory of the longest message. The pieces are short because grpc-go's
// pool has no sizes between 32 KiB and 1 MiB: a buffer for 64 KiB is one of 1 MiB.
const (
	firstBytes = 16 << 10 // as much as DATA has, so that most messages are in one buffer
	pieceBytes = 32 << 10
	joinBytes  = 256 << 10 // when so much has come, the pieces become one buffer
)

// readMessage reads n bytes. The memory is at most four times what has come, and firstBytes.
func (c *call) readMessage(n int) (mem.BufferSlice, error) {
	if mem.IsBelowBufferPoolingThreshold(n) {
		b := make([]byte, n)
		if err := c.readFull(b); err != nil {
			return nil, err
		}
		return c.slice(mem.SliceBuffer(b)), nil
	}
	pieces, err := c.readPieces(min(n, joinBytes))
	if err != nil || n <= joinBytes {
		return pieces, err
	}
	return c.readRest(pieces, n)
}

// readPieces reads n bytes, in pieces.
func (c *call) readPieces(n int) (mem.BufferSlice, error) {
	pool := c.conn.server.config.Pool
	var pieces mem.BufferSlice
	for have := 0; have < n; {
		b := pool.Get(min(n-have, max(4*have, firstBytes), pieceBytes))
		if err := c.readFull(*b); err != nil {
			pool.Put(b)
			pieces.Free()
			return nil, err
		}
		have += len(*b)
		if piece := mem.NewBuffer(b, pool); pieces == nil {
			pieces = c.slice(piece)
		} else {
			pieces = append(pieces, piece)
		}
	}
	return pieces, nil
}

// readRest reads the rest of a message of n bytes, of which pieces have come. They become one buffer,
// which grows by a factor of four.
func (c *call) readRest(pieces mem.BufferSlice, n int) (mem.BufferSlice, error) {
	pool := c.conn.server.config.Pool
	have := pieces.Len()
	b := pool.Get(min(n, 4*have))
	pieces.CopyTo(*b)
	pieces.Free()
	for {
		if err := c.readFull((*b)[have:]); err != nil {
			pool.Put(b)
			return nil, err
		}
		if have = len(*b); have == n {
			return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
		}
		longer := pool.Get(min(n, 4*have))
		copy(*longer, *b)
		pool.Put(b)
		b = longer
	}
}

// slice returns a slice of one buffer. The first one needs no memory of its own.
func (c *call) slice(b mem.Buffer) mem.BufferSlice {
	if c.messages.slot[0] == nil {
		c.messages.slot[0] = b
		return c.messages.slot[:1:1]
	}
	return mem.BufferSlice{b}
}

// readFull fills p. It returns io.EOF if there is nothing at all.
func (c *call) readFull(p []byte) error {
	for n := 0; n < len(p); {
		m, err := c.carrier().Read(p[n:])
		n += m
		switch {
		case err == nil:
		case err == io.EOF || errors.Is(err, h2.ErrShortBody): // the length is of no interest to gRPC
			return c.endOfMessages(n > 0)
		default:
			c.mu.Lock()
			defer c.mu.Unlock()
			return contextError(c.err)
		}
	}
	return nil
}

// endOfMessages returns the error of a message that the client has not sent, or not whole.
func (c *call) endOfMessages(torn bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.done:
		return contextError(c.err)
	case torn:
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}
