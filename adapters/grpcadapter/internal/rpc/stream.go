package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// TransportStream is a call as its context has it, for grpc.SetHeader, SendHeader, SetTrailer and
// Method.
type TransportStream call

// Method implements [grpc.ServerTransportStream].
func (t *TransportStream) Method() string { return t.method }

// SetHeader implements [grpc.ServerTransportStream].
func (t *TransportStream) SetHeader(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.headerSent || t.done {
		return errHeaderSent
	}
	t.header = metadata.Join(t.header, md)
	return nil
}

// SendHeader implements [grpc.ServerTransportStream].
func (t *TransportStream) SendHeader(md metadata.MD) error { return (*call)(t).sendHeader(md) }

// SetTrailer implements [grpc.ServerTransportStream].
func (t *TransportStream) SetTrailer(md metadata.MD) error {
	if md.Len() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return errHeaderSent
	}
	t.trailer = metadata.Join(t.trailer, md)
	return nil
}

// Compressors returns the names of the compressors that the client has announced.
func (t *TransportStream) Compressors() []string {
	names := strings.Split(t.Accepts(), ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	return names
}

// SetCompressor makes a compressor compress the messages that are sent. It returns the errors of
// grpc.SetSendCompressor.
func (t *TransportStream) SetCompressor(name string) error {
	if name != encoding.Identity {
		if encoding.GetCompressor(name) == nil {
			return fmt.Errorf("unable to set send compressor: compressor not registered %q", name)
		}
		if !slices.Contains(t.Compressors(), name) {
			return fmt.Errorf("unable to set send compressor: client does not support compressor %q", name)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.headerSent || t.done {
		return errors.New("transport: set send compressor called after headers sent or stream done")
	}
	t.chosen = &name
	return nil
}

// ChooseBy makes the call read the name of its compressor from *p until the header is sent. It sets *p
// to the present name, and reports whether the name may still change.
func (t *TransportStream) ChooseBy(p *string) (open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*p = (*call)(t).compressorLocked()
	if t.headerSent || t.done {
		return false
	}
	t.chosen = p
	return true
}

// Accepts returns the client's grpc-accept-encoding.
func (t *TransportStream) Accepts() string { return (*call)(t).accepts() }

// Codec returns the codec of the call's messages, or nil before it is known.
func (t *TransportStream) Codec() Codec { return t.messages.codec }

// serverStream is a call as its handler's stream.
type serverStream call

func (s *serverStream) call() *call { return (*call)(s) }

// Context implements [grpc.ServerStream].
func (s *serverStream) Context() context.Context { return s.ctx }

// SetHeader implements [grpc.ServerStream].
func (s *serverStream) SetHeader(md metadata.MD) error {
	if err := validate(md); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return (*TransportStream)(s).SetHeader(md)
}

// SendHeader implements [grpc.ServerStream].
func (s *serverStream) SendHeader(md metadata.MD) error {
	if err := validate(md); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return (*call)(s).sendHeader(md)
}

// SetTrailer implements [grpc.ServerStream].
func (s *serverStream) SetTrailer(md metadata.MD) {
	if err := validate(md); err != nil {
		logger.Errorf("stream: failed to validate md when setting trailer, err: %v", err)
	}
	_ = (*TransportStream)(s).SetTrailer(md)
}

// SendMsg implements [grpc.ServerStream].
func (s *serverStream) SendMsg(v any) error {
	err := statusError(s.send(v))
	if err != nil && err != io.EOF {
		s.abort(err)
	}
	return err
}

// abort ends the call with an error of the stream itself: grpc-go sends the status at once, whatever
// the handler returns.
func (s *serverStream) abort(err error) {
	st, _ := status.FromError(err)
	_ = s.call().sendStatus(st, false)
}

// send sends a message.
func (s *serverStream) send(v any) error {
	s.chooseCompressor()
	m := memories.Get().(*memory)
	defer m.release()
	config := s.call().config()
	e, err := s.messages.encode(v, m, s.marshal, config.Pool, config.SendBytesMax)
	defer e.free(config.Pool) // sending doesn't keep it
	if err != nil {
		return err
	}
	return s.call().sendMessage(&e, m, s.from.isUnary())
}

// marshal returns the bytes of a message.
func (s *serverStream) marshal(v any) (mem.BufferSlice, error) {
	if prepared, ok := v.(*grpc.PreparedMsg); ok {
		return s.prepared(prepared)
	}
	return s.messages.marshal(v)
}

// prepared returns the bytes of a message that was marshaled before. If it was compressed as well,
// that is done again.
func (s *serverStream) prepared(v *grpc.PreparedMsg) (mem.BufferSlice, error) {
	if look := s.call().config().Prepared; look != nil {
		if b, ok := look(v); ok {
			return b, nil
		}
	}
	return nil, status.Error(codes.Internal, "grpcadapter: a grpc.PreparedMsg can't be sent by this server")
}

// chooseCompressor takes the compressor that the handler may have chosen since the last message.
func (s *serverStream) chooseCompressor() {
	s.mu.Lock()
	name := s.call().compressorLocked()
	s.mu.Unlock()
	if z := s.messages.compressed; z == nil && name != "" || z != nil && name != z.name {
		z = s.messages.compression()
		z.compressor, z.name = encoding.GetCompressor(name), name
	}
}

// RecvMsg implements [grpc.ServerStream].
func (s *serverStream) RecvMsg(v any) error {
	err := s.recv(v)
	if err != nil && err != io.EOF {
		s.abort(statusError(err))
	}
	return err
}

// recv receives a message.
func (s *serverStream) recv(v any) error {
	m := &s.messages
	if err := s.recvOne(v, s.call().stats()); err != nil {
		if err == io.EOF && !s.from.desc.ClientStreams && !m.received {
			return status.Error(codes.Internal, "cardinality violation: received no request message from non-client-streaming RPC")
		}
		return statusError(err)
	}
	m.received = true
	if s.from.desc.ClientStreams {
		return nil
	}
	switch err := s.recvOne(v, nil); err { // the client has sent all: that must be the end
	case io.EOF:
		return nil
	case nil:
		return status.Error(codes.Internal, "cardinality violation: received multiple request messages for non-client-streaming RPC")
	default:
		return err
	}
}

// recvOne receives a message, and reports it to sh unless that is nil.
func (s *serverStream) recvOne(v any, sh stats.Handler) error {
	flag, wire, err := s.messages.receiveHead(s)
	if err != nil {
		return err
	}
	of, err := s.messages.receive(s, v, flag, wire)
	if err == nil {
		of.received(s.conn.counts, sh, s.ctx, false)
	}
	return err
}

// buffered implements receiver.
func (s *serverStream) buffered() int { return s.call().carrier().Buffered() }

// limits implements receiver.
func (s *serverStream) limits() (pool mem.BufferPool, most int) {
	return s.call().config().Pool, s.call().config().RecvBytesMax
}

// readFull implements receiver.
func (s *serverStream) readFull(p []byte) error {
	n, err := s.call().carrier().ReadFull(p)
	switch {
	case err == nil:
		return nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return s.endOfMessages(n > 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return contextError(s.err)
}

// endOfMessages returns the error of a message of which the client has sent nothing, or only a part.
func (s *serverStream) endOfMessages(torn bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
		return contextError(s.err)
	case torn:
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// chooseCodec finds the codec and the compressor. If the compressor is unknown, it sends the status.
func (c *call) chooseCodec() error {
	m := &c.messages
	if m.codec = c.config().Codec; m.codec == nil {
		m.codec = codecFor(c.subtype())
	}
	name := m.encoding()
	if name == "" || name == encoding.Identity {
		return nil
	}
	by := encoding.GetCompressor(name)
	if by == nil {
		st := status.Newf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", name)
		_ = c.sendStatus(st, true)
		return st.Err()
	}
	z := m.compressed
	z.decompressor, z.compressor, z.name = by, by, name
	c.chosen = &z.encoding
	return nil
}
