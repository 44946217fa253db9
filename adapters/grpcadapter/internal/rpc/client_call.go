package rpc

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// unaryDesc is the description of all unary calls.
var unaryDesc = &grpc.StreamDesc{}

// clientCall is a call of a Client. It makes one attempt after the other until an attempt succeeds.
//
//	committed  finished  meaning                                             leaves by
//	false      false     a failure may be answered with another attempt;     the first answer, too long messages,
//	                     what was sent is kept for it                        a failure that isn't retried
//	true       false     the attempt is the last one                         finish
//	true       true      the outcome is known                                (final)
//
// If the method takes one request, the header waits for it, and both are sent together.
type clientCall struct {
	// immutable
	client  *Client
	ctx     context.Context
	md      metadata.MD        // of ctx
	cancel  context.CancelFunc // nil if ctx is the caller's
	method  string
	desc    *grpc.StreamDesc
	opts    []grpc.CallOption
	info    *callInfo
	config  *methodConfig
	delayed bool        // resolving the name took time
	pinned  *clientConn // the only connection the call may use; nil: any

	out messages // how messages are sent; used by the sending goroutine only

	told atomic.Bool // the end of the call was reported

	sentLast bool // used by the sending goroutine only
	received bool // a message was; used by the receiving goroutine only

	mu sync.Mutex

	// guarded by mu
	attempt       *attempt // nil before the first
	kept          []sending
	keptBytes     int
	committed     bool
	finished      bool
	tried         bool        // attempt is not the first
	retries       int         // made because of the policy
	sincePushback int         // retries since the last pushback of the server
	leave         func() bool // undoes endWithClient; nil if it wasn't called

	first attempt // memory for the first attempt
}

// A sending is a message, the end, both, or only the header.
type sending struct {
	message any // set if encodes is
	pieces
	of      payload
	encodes bool // in a unary call, each attempt encodes the message
	last    bool
}

// newStream begins a call.
func (c *Client) newStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts []grpc.CallOption) (_ *clientCall, err error) {
	s := newCall(desc)
	s.client, s.ctx, s.method, s.desc, s.opts = c, ctx, method, desc, opts
	c.CallStarted()
	defer func() {
		if err != nil {
			s.tellFinished(err)
		}
	}()
	s.md, _ = metadata.FromOutgoingContext(ctx)
	if err := validate(s.md); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if s.delayed, err = c.Resolved(ctx); err != nil {
		return nil, err
	}
	s.config = c.service.Load().of(method)
	if err := s.heedOptions(); err != nil {
		return nil, err
	}
	switch t := s.config.Timeout; {
	case t != nil && *t >= 0:
		s.ctx, s.cancel = context.WithTimeout(ctx, *t)
	case desc != unaryDesc: // the user of a unary call doesn't see its context
		s.ctx, s.cancel = context.WithCancel(ctx)
	}
	if desc != unaryDesc {
		if err := s.send(sending{}); err != nil {
			s.finish(err)
			return nil, err
		}
		s.endWithClient()
	}
	return s, nil
}

// heedOptions applies the call options and the service config.
func (s *clientCall) heedOptions() (err error) {
	if s.info, err = callInfoOf(s.opts, s.config); err != nil {
		return err
	}
	if s.out.codec = s.info.codec; s.out.codec == nil {
		s.out.codec = codecOf(proto.Name)
	}
	if s.info.compressor != nil {
		s.out.compression().compressor = s.info.compressor
	}
	return nil
}

// exchange makes a unary call. Afterwards another call may use the memory of s.
func (s *clientCall) exchange(args, reply any) error {
	op := sending{message: args, encodes: true, last: true}
	err := s.withRetry(func(a *attempt) error { return a.exchange(&op, reply) }, s.commitLocked)
	s.finish(err)
	s.release()
	return err
}

// unaryCalls recycles the memory of unary calls.
var unaryCalls = sync.Pool{New: func() any { return new(clientCall) }}

func newCall(desc *grpc.StreamDesc) *clientCall {
	if desc == unaryDesc {
		return unaryCalls.Get().(*clientCall)
	}
	return new(clientCall)
}

// release recycles the memory of a finished unary call, unless it may still be in use: by another
// attempt, by the end of the context, or by a codec that got a message in the memory of the attempt.
func (s *clientCall) release() {
	a := &s.first
	if s.attempt == a && !s.tried && a.opened && !a.cancels && a.in.slot[0] == nil && a.stream.Release() {
		*s = clientCall{}
		unaryCalls.Put(s)
	}
}

// endWithClient finishes a stream when the client ends, since no RecvMsg may be under way to do it.
func (s *clientCall) endWithClient() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.leave = context.AfterFunc(s.client.streams, func() { s.finish(errClientClosing) })
	}
}

func (s *clientCall) stop() {
	if s.cancel != nil {
		s.cancel()
	}
}

// tellFinished reports the outcome of the call to its options; nil is success. Calls after the first
// do nothing.
func (s *clientCall) tellFinished(err error) {
	if s.told.Swap(true) {
		return
	}
	for _, o := range s.opts {
		if o, ok := o.(grpc.OnFinishCallOption); ok {
			o.OnFinish(err)
		}
	}
	s.client.CallEnded()
}

// newAttempt makes an attempt. s.mu is held, or s is not shared yet.
func (s *clientCall) newAttempt(transparent bool) (*attempt, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if s.client.closed.Load() {
		return nil, errClientClosing
	}
	a := &s.first
	if s.tried {
		a = new(attempt)
	}
	a.begin(s, transparent)
	return a, nil
}

//lint:ignore SA1019 programs compare with it
var errClientClosing = grpc.ErrClientConnClosing

// withRetry calls do with the current attempt, and again with each attempt that replaces it after a
// failure. When do has succeeded, withRetry calls done with mu held.
func (s *clientCall) withRetry(do func(*attempt) error, done func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.attempt == nil {
			a, err := s.newAttempt(false)
			if err != nil {
				return s.unlocked(func() error { s.finish(err); return err })
			}
			s.attempt = a
		}
		a, committed := s.attempt, s.committed
		err := s.unlocked(func() error { return do(a) })
		if committed {
			return err
		}
		switch {
		case a != s.attempt:
			continue // the other goroutine has begun a new attempt
		case err == nil, err == io.EOF && a.outcome().Code() == codes.OK:
			done()
			return err
		}
		if err := s.retryLocked(a, err); err != nil {
			return err
		}
	}
}

// unlocked calls do without mu. It locks mu again even if do panics, as codecs and credentials may:
// the caller may recover.
func (s *clientCall) unlocked(do func() error) error {
	s.mu.Unlock()
	defer s.mu.Lock()
	return do()
}

// retryLocked replaces a, which has failed with failure. It makes attempts until one has sent again
// all that a had sent. It returns the error of the call if no other attempt is allowed. If the last
// attempt ends while it sends again, the next operation returns how.
func (s *clientCall) retryLocked(a *attempt, failure error) error {
	for {
		transparent, err := s.mayRetryLocked(a, failure)
		if err != nil {
			s.commitLocked()
			if err == io.EOF {
				return nil
			}
			return err
		}
		a.finish(a.statusOf(failure))
		s.tried = true
		next, err := s.newAttempt(transparent)
		if err != nil {
			return err
		}
		s.attempt = next
		if failure = s.replayLocked(next); failure == nil {
			return nil
		}
		a = next
	}
}

// replayLocked sends everything again that earlier attempts have sent.
func (s *clientCall) replayLocked(a *attempt) error {
	for i := range s.kept {
		if err := a.send(&s.kept[i]); err != nil {
			return err
		}
	}
	return nil
}

// mayRetryLocked decides whether another attempt may follow a, which has failed with failure. If not,
// it returns the error of the call. Otherwise it ends a and waits as long as the policy says.
// transparent reports that the server has not seen the call. The order of the checks is grpc-go's.
func (s *clientCall) mayRetryLocked(a *attempt, failure error) (transparent bool, err error) {
	if s.finished || s.committed {
		return false, failure
	}
	st := a.statusOf(failure)
	bare, _ := a.known()
	switch {
	case !s.tried && a.unserved:
		return true, nil
	case s.client.config.DisableRetry:
		return false, failure
	case a.opened && !bare:
		return false, failure
	}
	pushback, has, ok := pushbackOf(a.trailerMD())
	throttle := s.client.throttle.Load()
	if !ok {
		throttle.failed()
		return false, failure
	}
	policy := s.config.RetryPolicy
	switch {
	case policy == nil || !policy.RetryableStatusCodes[st.Code()]:
		return false, failure
	case throttle.failed():
		return false, failure
	case s.retries+1 >= min(policy.MaxAttempts, s.client.config.AttemptsMost):
		a.finish(st) // the status of the call is another one
		return false, fmt.Errorf("max retries exhausted: failed after %d attempts: %w", s.retries+1, failure)
	}
	wait := pushback
	if has {
		s.sincePushback = 0
	} else {
		wait = s.config.retryWait(s.sincePushback)
		s.sincePushback++
	}
	a.finish(st)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		s.retries++
		return false, nil
	case <-s.ctx.Done():
		return false, status.FromContextError(s.ctx.Err()).Err()
	}
}

// retryWait returns how long to wait before the next attempt, with 20 % of jitter either way.
func (m *methodConfig) retryWait(retries int) time.Duration {
	p := m.RetryPolicy
	d := min(float64(p.InitialBackoff)*math.Pow(p.BackoffMultiplier, float64(retries)), float64(p.MaxBackoff))
	return time.Duration(d * (0.8 + 0.4*rand.Float64()))
}

// pushbackOf returns how long the server wants the client to wait before a retry; has reports whether
// the server says so. ok is false if the server forbids retries.
func pushbackOf(trailer metadata.MD) (wait time.Duration, has, ok bool) {
	values := trailer["grpc-retry-pushback-ms"]
	switch len(values) {
	case 0:
		return 0, false, true
	case 1:
		ms, err := strconv.Atoi(values[0])
		return time.Duration(ms) * time.Millisecond, true, err == nil && ms >= 0
	}
	return 0, false, false
}

// commitLocked makes the current attempt the last one.
func (s *clientCall) commitLocked() { s.committed, s.kept = true, nil }

func (s *clientCall) commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commitLocked()
}

// keepLocked keeps op for another attempt.
func (s *clientCall) keepLocked(op sending) {
	if s.committed {
		return
	}
	if s.keptBytes += op.of.compressedLength; s.keptBytes > s.info.retryMost {
		s.commitLocked()
		return
	}
	if s.kept == nil {
		s.kept = make([]sending, 0, 2) // the header and a message
	}
	s.kept = append(s.kept, op)
}

// send sends op. The error is io.EOF if the outcome of the call is known.
func (s *clientCall) send(op sending) error {
	return s.withRetry(func(a *attempt) error { return a.send(&op) }, func() { s.keepLocked(op) })
}

// SendMsg implements [grpc.ClientStream].
func (s *clientCall) SendMsg(v any) error {
	err := s.sendMsg(v)
	switch {
	case err == io.EOF && !s.desc.ClientStreams:
		return nil // RecvMsg returns the error
	case err != nil && err != io.EOF:
		s.finish(err)
	}
	return err
}

// sendMsg sends a message. The error is io.EOF if the outcome of the call is known.
func (s *clientCall) sendMsg(v any) error {
	if s.sentLast {
		return status.Errorf(codes.Internal, "SendMsg called after CloseSend")
	}
	s.sentLast = !s.desc.ClientStreams
	m := memories.Get().(*memory)
	defer m.release()
	e, err := s.encode(v, m)
	defer e.free(s.client.config.Pool)
	if err != nil {
		return err
	}
	op := sending{pieces: e.pieces, of: e.of, last: s.sentLast}
	if !s.isCommitted() {
		op.pieces = e.join() // it may be kept for another attempt
	}
	return s.send(op)
}

// isCommitted reports whether the current attempt is the last one.
func (s *clientCall) isCommitted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed
}

// encode encodes a message in m.
func (s *clientCall) encode(v any, m *memory) (encoded, error) {
	return s.out.encode(v, m, s.out.marshal, s.client.config.Pool, s.info.sendMost)
}

// CloseSend implements [grpc.ClientStream].
func (s *clientCall) CloseSend() error {
	if !s.sentLast {
		s.sentLast = true
		_ = s.send(sending{last: true}) // RecvMsg returns the error
	}
	return nil
}

// RecvMsg implements [grpc.ClientStream].
func (s *clientCall) RecvMsg(v any) error {
	if !s.desc.ServerStreams && !s.received {
		return s.recvLast(v)
	}
	return s.recvMsg(v)
}

// recvMsg receives a message. The error is io.EOF after the last message of a successful call.
func (s *clientCall) recvMsg(v any) error {
	err := s.leftErr()
	if err == nil {
		err = s.withRetry(func(a *attempt) error { return a.recv(v) }, s.commitLocked)
	}
	if err != nil {
		s.finish(err)
	}
	return err
}

// leftErr returns an error if the context has ended but the call has not: another goroutine ends the
// call, and an answer may come first.
func (s *clientCall) leftErr() error {
	ended := s.ctx.Err()
	if ended == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return nil
	}
	return status.FromContextError(ended).Err()
}

// recvLast receives the only message of an answer, and the status after it.
func (s *clientCall) recvLast(v any) error {
	if err := s.recvMsg(v); err != nil {
		return err
	}
	err := onlyOne(s.recvMsg(nothing))
	if err != nil {
		s.finish(err)
	}
	return err
}

// onlyOne returns the error of a call that expects one message. err is the result of receiving after
// that message.
func onlyOne(err error) error {
	switch err {
	case io.EOF:
		return nil
	case nil:
		return status.Error(codes.Internal, "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message")
	}
	return err
}

// nothing is the target for a message that must not come: it is not decoded.
var nothing = new(struct{})

// Header implements [grpc.ClientStream]. As with grpc-go, it returns nil, nil if no header has come.
func (s *clientCall) Header() (md metadata.MD, _ error) {
	err := s.withRetry(func(a *attempt) error {
		err := a.awaitHeader()
		md = a.headerMD()
		return err
	}, s.commitLocked)
	if err == nil && md == nil {
		err = io.EOF // the call has ended with success
	}
	if err != nil {
		s.finish(err)
		return nil, nil
	}
	return md, nil
}

// Trailer implements [grpc.ClientStream].
func (s *clientCall) Trailer() metadata.MD {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commitLocked()
	if s.attempt == nil {
		return make(metadata.MD)
	}
	return s.attempt.trailerMD()
}

// Context implements [grpc.ClientStream].
func (s *clientCall) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commitLocked()
	if a := s.attempt; a != nil && a.opened {
		return peer.NewContext(a.ctx, &a.conn.peer)
	}
	return s.ctx
}

// finish ends the call with its outcome.
func (s *clientCall) finish(err error) {
	if err == io.EOF {
		err = nil
	}
	s.mu.Lock()
	if s.finished {
		s.mu.Unlock()
		return
	}
	s.finished = true
	s.commitLocked()
	if s.leave != nil {
		s.leave()
	}
	a := s.attempt
	if a != nil {
		a.finish(status.Convert(err))
		if a.opened {
			s.fillOptions(a)
		}
	}
	s.mu.Unlock()
	if err == nil {
		s.client.throttle.Load().succeeded()
	}
	s.tellFinished(err)
	s.stop()
}

// fillOptions sets what the caller's options point to.
func (s *clientCall) fillOptions(a *attempt) {
	for _, o := range s.opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = a.headerMD()
		case grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailerMD()
		case grpc.PeerCallOption:
			*o.PeerAddr = a.conn.peer
		}
	}
}
