package rpc

import (
	"encoding/binary"
	"io"
	"math"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
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
	if prepared, ok := v.(*grpc.PreparedMsg); ok {
		return c.prepared(prepared)
	}
	return c.messages.marshal(v)
}

// marshal returns the bytes of a message.
func (m *messages) marshal(v any) (mem.BufferSlice, error) {
	if v == nil {
		return nil, nil
	}
	b, err := m.codec.Marshal(v)
	if err != nil {
		return nil, marshalError(err)
	}
	if n := uint(b.Len()); n > math.MaxUint32 {
		b.Free()
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: message too large (%d bytes)", n)
	}
	return b, nil
}

// encodeInPlace encodes a protobuf message that is not compressed, with its head before it, in the
// memory from which it is sent: without the memory that grpc-go's codec allocates for a short one, and
// overwrites with zeros for a long one. That is m's, or if long is not nil, memory of the pool. body is
// nil for messages of other kinds, and for those that are longer than most.
func (m *messages) encodeInPlace(v any, in *memory, pool mem.BufferPool, most int) (body []byte, long *[]byte, err error) {
	if z := m.compressed; z != nil && z.compressor != nil || !isProtobuf(m.codec) {
		return nil, nil, nil
	}
	msg := protoMessage(v)
	if msg == nil {
		return nil, nil, nil
	}
	size := protobuf.Size(msg)
	if size > most || size > math.MaxInt32 {
		return nil, nil, nil
	}
	to := in.body[:0]
	if size > bodyBytes-headBytes {
		long = pool.Get(headBytes + size)
		to = (*long)[:0]
	}
	body, err = protobuf.MarshalOptions{UseCachedSize: true}.MarshalAppend(appendHead(to, false, size), msg)
	if err != nil {
		return nil, long, marshalError(err)
	}
	if size != len(body)-headBytes { // another goroutine has changed it: only this message may suffer
		binary.BigEndian.PutUint32(body[1:], uint32(len(body)-headBytes))
	}
	return body, long, nil
}

// pieces are a message with its head before it, or nothing.
type pieces struct {
	first []byte          // the head, and what fits behind it
	rest  []byte          // of the buffer that doesn't fit
	more  mem.BufferSlice // behind that
}

// join returns the pieces as one, in memory of its own.
func (p *pieces) join() pieces {
	whole := append(append(make([]byte, 0, len(p.first)+len(p.rest)+p.more.Len()), p.first...), p.rest...)
	for _, b := range p.more {
		whole = append(whole, b.ReadOnlyData()...)
	}
	return pieces{first: whole}
}

// encoded is a message that is ready to be sent, until free.
type encoded struct {
	pieces
	of   outPayload
	long *[]byte            // of the pool; nil: it is not needed
	held [2]mem.BufferSlice // what the pieces are in
}

func (e *encoded) free(pool mem.BufferPool) {
	if e.long != nil {
		pool.Put(e.long)
	}
	e.held[0].Free()
	e.held[1].Free()
}

// encode encodes a message, compressed if there is a compressor, with its head before it in m. It
// must be freed in any case. marshal is for messages that are not encoded in place.
func (m *messages) encode(v any, in *memory, marshal func(any) (mem.BufferSlice, error), pool mem.BufferPool, most int) (e encoded, err error) {
	e.first, e.long, err = m.encodeInPlace(v, in, pool, most)
	if e.first != nil || err != nil {
		n := len(e.first) - headBytes
		e.of = outPayload{v, n, n}
		return e, err
	}
	payload, err := marshal(v)
	if err != nil {
		return e, err
	}
	e.held[0] = payload
	e.of = outPayload{v, payload.Len(), payload.Len()}
	compressed, done, err := m.compress(payload, pool)
	if err != nil {
		return e, err
	}
	if done {
		e.held[1], payload = compressed, compressed
		e.of.compressedLength = payload.Len()
	}
	if n := payload.Len(); n > most {
		return e, status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", n, most)
	}
	e.first = appendHead(in.body[:0], done, payload.Len())
	for i, b := range payload {
		p := b.ReadOnlyData()
		n := copy(e.first[len(e.first):cap(e.first)], p)
		if e.first = e.first[:len(e.first)+n]; n < len(p) {
			e.rest, e.more = p[n:], payload[i+1:]
			break
		}
	}
	return e, nil
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
func (m *messages) compress(data mem.BufferSlice, pool mem.BufferPool) (_ mem.BufferSlice, done bool, err error) {
	z := m.compressed
	if z == nil || z.compressor == nil || data.Len() == 0 {
		return nil, false, nil
	}
	var out mem.BufferSlice // an allocation, which other messages don't need
	w, err := z.compressor.Compress(mem.NewWriter(&out, pool))
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

// A receiver is a call whose messages are received.
type receiver interface {
	readFull(p []byte) error // io.EOF if there is nothing at all
	buffered() int           // bytes that can be read without waiting
	limits() (pool mem.BufferPool, most int)
}

func (c *call) buffered() int { return c.carrier().Buffered() }

func (c *call) limits() (pool mem.BufferPool, most int) {
	return c.conn.server.config.Pool, c.conn.server.config.RecvBytesMax
}

// receiveHead reads the head of the next message.
func (m *messages) receiveHead(from receiver) (flag byte, length int, err error) {
	head := m.head[:]
	if err := from.readFull(head); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	_, most := from.limits()
	switch {
	case int64(n) > math.MaxInt:
		return 0, 0, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max length allowed on current machine (%d vs. %d)", n, math.MaxInt)
	case int(n) > most:
		return 0, 0, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, most)
	}
	return head[0], int(n), nil
}

// ownDecoder is a message of protobuf's old kind with a method of its own to decode it, which package
// proto calls. It may keep the bytes, unlike package proto's decoder.
type ownDecoder interface{ Unmarshal([]byte) error }

// decodeInPlace reads and decodes a short protobuf message that is not compressed and has come as a
// whole. Its bytes are copied into memory that is used again: decoding keeps none of them. With
// handled=false nothing was read.
func (m *messages) decodeInPlace(from receiver, v any, flag byte, length int) (handled bool, err error) {
	short := mem.IsBelowBufferPoolingThreshold(length)
	if !short || flag != 0 || !isProtobuf(m.codec) || from.buffered() < length {
		return false, nil // a client that sends no more would hold the memory
	}
	msg := protoMessage(v)
	if _, own := v.(ownDecoder); own || msg == nil {
		return false, nil
	}
	space := memories.Get().(*memory)
	defer space.release()
	p := space.body[:length]
	if err := readBody(from, p); err != nil {
		return true, err
	}
	if err := protobuf.Unmarshal(p, msg); err != nil {
		return true, unmarshalError(err)
	}
	return true, nil
}

// decode reads, decompresses and decodes a message. decompressed is its length after the second step.
func (m *messages) decode(from receiver, v any, flag byte, length int) (decompressed int, err error) {
	data, err := m.receive(from, flag, length)
	if err != nil {
		return 0, err
	}
	defer data.Free()
	if err := m.codec.Unmarshal(data, v); err != nil {
		return 0, unmarshalError(err)
	}
	return data.Len(), nil
}

// unmarshalError is the status of a message that can't be decoded.
func unmarshalError(err error) error {
	return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
}

// receive reads a message, and decompresses it.
func (m *messages) receive(from receiver, flag byte, length int) (mem.BufferSlice, error) {
	data, err := m.readMessage(from, length)
	if err != nil {
		return nil, err
	}
	if err := m.checkCompressed(flag); err != nil {
		data.Free()
		return nil, err
	}
	if flag == 0 {
		return data, nil
	}
	defer data.Free()
	pool, most := from.limits()
	return m.decompress(data, pool, most)
}

// checkCompressed returns an error if the flag before a message is wrong.
func (m *messages) checkCompressed(flag byte) error {
	switch {
	case flag > 1:
		return status.Errorf(codes.Internal, "grpc: received unexpected payload format %d", flag)
	case flag == 1 && (m.encoding() == "" || m.encoding() == encoding.Identity):
		return status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	}
	return nil
}

// decompress returns data decompressed, of which at most a number of bytes may come.
func (m *messages) decompress(data mem.BufferSlice, pool mem.BufferPool, most int) (mem.BufferSlice, error) {
	from := data.Reader()
	r, err := m.compressed.decompressor.Decompress(from)
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
	out, err := mem.ReadAll(r, pool)
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
// could make a server take the memory of the longest message.
const (
	firstBytes = 16 << 10 // as much as DATA has: the memory that takes no bytes that have come
	growth     = 4        // the memory is about that many times what has come, at most; in the pool's sizes twice that
)

// bufferBytes returns how long the memory of a message of n bytes may be when so many have come. It is
// n divided by a power of growth, so that few bytes are copied to longer memory: n/3 at most.
func bufferBytes(n, come int) int {
	most := growth * int64(come)
	most += most / 8 // for a length that is a little more than a power of two
	for most = max(most, firstBytes); int64(n) > most; {
		n = 1 + (n-1)/growth
	}
	return n
}

// readMessage reads n bytes into one buffer.
func (m *messages) readMessage(from receiver, n int) (mem.BufferSlice, error) {
	if mem.IsBelowBufferPoolingThreshold(n) {
		b := make([]byte, n)
		if err := readBody(from, b); err != nil {
			return nil, err
		}
		return m.slice(mem.SliceBuffer(b)), nil
	}
	pool, _ := from.limits()
	var b *[]byte
	for have := 0; have < n; have = len(*b) {
		longer := pool.Get(bufferBytes(n, have+min(from.buffered(), n-have)))
		if b != nil {
			copy(*longer, *b)
			pool.Put(b)
		}
		b = longer
		if err := readBody(from, (*b)[have:]); err != nil {
			pool.Put(b)
			return nil, err
		}
	}
	return m.slice(mem.NewBuffer(b, pool)), nil
}

// slice returns a slice of one buffer. The first one needs no memory of its own.
func (m *messages) slice(b mem.Buffer) mem.BufferSlice {
	if m.slot[0] == nil {
		m.slot[0] = b
		return m.slot[:1:1]
	}
	return mem.BufferSlice{b}
}

// readBody fills p with bytes of a message: the stream must not end before them.
func readBody(from receiver, p []byte) error {
	err := from.readFull(p)
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readFull fills p. It returns io.EOF if there is nothing at all.
func (c *call) readFull(p []byte) error {
	n, err := c.carrier().ReadFull(p)
	switch {
	case err == nil:
		return nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return c.endOfMessages(n > 0)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return contextError(c.err)
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
