package rpc

import (
	"encoding/binary"
	"io"
	"math"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/percore/percore/adapters/h2"
)

// headBytes is the length of the head of a message: a byte that tells whether the message is
// compressed, and four bytes for its length.
const headBytes = 5

// messages is how messages are coded. It belongs to the handler.
type messages struct {
	codec      Codec
	compressed *compression // nil: none are
	slot       [1]mem.Buffer
	head       [headBytes]byte
	received   bool // the first one
	hasSubtype bool // of the content-type
}

// compression tells how messages are compressed.
type compression struct {
	encoding     string // of received messages; "": none; immutable once Serve has begun
	decompressor encoding.Compressor
	compressor   encoding.Compressor
	name         string // of compressor
}

// compression returns the compression, for changes.
func (m *messages) compression() *compression {
	if m.compressed == nil {
		m.compressed = new(compression)
	}
	return m.compressed
}

// encoding returns the compressor's name of the messages that come; "": none.
func (m *messages) encoding() string {
	if m.compressed == nil {
		return ""
	}
	return m.compressed.encoding
}

// payload describes a message for the stats handler: its length before compression, and as sent.
type payload struct {
	message                  any
	length, compressedLength int
}

// memory has the buffers for making a part of an answer.
type memory struct {
	fields   [8]h2.Field
	trailers [8]h2.Field
	body     [bodyBytes]byte
}

// bodyBytes is how many bytes of a message are sent in one piece with its head. The rest isn't copied.
const bodyBytes = 16<<10 - 16

var memories = sync.Pool{New: func() any { return new(memory) }}

// release gives the memory back. Most messages of a stream have used no fields, which the collector
// makes expensive to clear.
func (m *memory) release() {
	for _, fields := range [...]*[len(m.fields)]h2.Field{&m.fields, &m.trailers} {
		if fields[0] != (h2.Field{}) {
			clear(fields[:])
		}
	}
	memories.Put(m)
}

// appendHead appends the head of a message.
func appendHead(to []byte, compressed bool, length int) []byte {
	flag := byte(0)
	if compressed {
		flag = 1
	}
	return binary.BigEndian.AppendUint32(append(to, flag), uint32(length))
}

// marshalError returns the status for a message that can't be encoded.
func marshalError(err error) error {
	return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err.Error())
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

// encodeInPlace encodes an uncompressed protobuf message, behind its head, in the memory that it is sent
// from: in's, or the pool's if long is not nil. grpc-go's codec allocates memory for a short message,
// and overwrites that of a long one with zeros. body is nil for messages of other kinds or longer than
// most.
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

// send sends the pieces to a stream, as the body of m. All but the last are held for the next one.
func (p *pieces) send(to interface{ Send(h2.Message) error }, m h2.Message) error {
	ends, split := m.End, len(p.rest) > 0
	m.Body, m.End, m.Hold = p.first, ends && !split, m.Hold || split
	if err := to.Send(m); err != nil || !split {
		return err
	}
	body := p.rest
	for _, b := range p.more {
		if err := to.Send(h2.Message{Body: body, Hold: true}); err != nil {
			return err
		}
		body = b.ReadOnlyData()
	}
	return to.Send(h2.Message{Body: body, End: ends})
}

// encoded is a message that is ready to be sent, until free.
type encoded struct {
	pieces
	of   payload
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

// encode encodes a message behind its head, compressed if there is a compressor. The result must be
// freed even after an error. marshal is for messages that are not encoded in place.
func (m *messages) encode(v any, in *memory, marshal func(any) (mem.BufferSlice, error), pool mem.BufferPool, most int) (e encoded, err error) {
	e.first, e.long, err = m.encodeInPlace(v, in, pool, most)
	if e.first != nil || err != nil {
		n := len(e.first) - headBytes
		e.of = payload{v, n, n}
		return e, err
	}
	data, err := marshal(v)
	if err != nil {
		return e, err
	}
	e.held[0] = data
	e.of = payload{v, data.Len(), data.Len()}
	compressed, done, err := m.compress(data, pool)
	if err != nil {
		return e, err
	}
	if done {
		e.held[1], data = compressed, compressed
		e.of.compressedLength = data.Len()
	}
	if n := data.Len(); n > most {
		return e, status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", n, most)
	}
	e.first = appendHead(in.body[:0], done, data.Len())
	for i, b := range data {
		p := b.ReadOnlyData()
		n := copy(e.first[len(e.first):cap(e.first)], p)
		if e.first = e.first[:len(e.first)+n]; n < len(p) {
			e.rest, e.more = p[n:], data[i+1:]
			break
		}
	}
	return e, nil
}

// compress returns data compressed. done is false if there is no compressor, or no data.
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
// whole. Its bytes are copied into memory that is used again: decoding doesn't keep them. With
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

// receive reads, decompresses and decodes a message, whose head has been read.
func (m *messages) receive(from receiver, v any, flag byte, wire int) (payload, error) {
	of := payload{v, wire, wire}
	if handled, err := m.decodeInPlace(from, v, flag, wire); handled {
		return of, err
	}
	data, err := m.receiveBytes(from, flag, wire)
	if err != nil {
		return of, err
	}
	defer data.Free()
	of.length = data.Len()
	if err := m.codec.Unmarshal(data, v); err != nil {
		return of, unmarshalError(err)
	}
	return of, nil
}

// unmarshalError is the status of a message that can't be decoded.
func unmarshalError(err error) error {
	return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
}

// receiveBytes reads a message, and decompresses it.
func (m *messages) receiveBytes(from receiver, flag byte, length int) (mem.BufferSlice, error) {
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

// decompress returns data decompressed, at most so many bytes.
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

// The buffer of a message grows as its bytes come. Otherwise the five bytes that announce its length
// could make a server allocate a buffer for the longest message.
const (
	firstBytes = 16 << 10 // as much as a DATA frame has, before any bytes have come
	growth     = 4        // how many times as long as what has come; up to twice that, with the pool's sizes
)

// bufferBytes returns how long the buffer of a message of n bytes may be when so many have come. It is n
// divided by a power of growth, so at most n/3 bytes are copied to longer buffers.
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
