package grpcadapter

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
)

// Detach lets a stream of messages go on after its method has returned, for watches and the like. It
// calls begin with the stream's rest, a [Stream], that any goroutine may send to. Call it last in the
// method, which returns its result:
//
//	func (s *service) Watch(in *pb.WatchRequest, stream pb.Service_WatchServer) error {
//		return grpcadapter.Detach(stream, func(st *grpcadapter.Stream) { s.add(in.Key, st) })
//	}
//
// In a [Server], and in a grpc.Server that [Wrap] serves past grpc-go's transport, Detach returns when
// begin does. The method returns, and the call waits without a goroutine. The call ends, for the client,
// stats handlers and GracefulStop, when the Stream does. If the method, or an interceptor, returns an
// error behind Detach, the call ends with that.
//
// Elsewhere Detach returns when the Stream has ended, with what the method is to return: where grpc-go's
// transport serves, in ServeHTTP, and if there are stream interceptors. Those would take the method's
// return for the end of the call, unless the option [DetachInterceptors] says that they may. The same
// program runs in both ways.
//
// In begin, register the Stream where others find it. Messages are sent when the method has returned,
// through stream, whose wrappers see each of them. Set headers and trailers with stream, before Close;
// don't send with it. Another goroutine may receive with it.
//
// Detach fails, without calling begin, if stream is detached already, or the method has returned.
func Detach(stream grpc.ServerStream, begin func(*Stream)) error {
	if stream == nil || begin == nil {
		return status.Error(codes.Internal, "grpcadapter: Detach was called with a nil grpc.ServerStream or function")
	}
	s := &Stream{stream: stream, limit: defaultUnsent, sending: true}
	ok, err := rpc.Detach(stream.Context(), &s.call, (*owner)(s))
	switch {
	case err != nil:
		return status.Error(codes.Internal, err.Error())
	case !ok:
		return s.hold(begin)
	}
	s.begin(begin)
	return nil
}

// A Stream is the rest of a call that [Detach] has detached. Any goroutine may call the methods, which
// never wait for the client.
//
// Messages go to the client on a goroutine of the server's, one after the other. When the client takes
// them more slowly than they come, they wait in memory, up to a limit: see SetLimit.
//
//	state    meaning                                           leaves by
//	open     messages may be sent                              Close: closing; end: dead
//	closing  the rest is being sent                            all is sent: ending; end: dead
//	dead     the call has ended, a message was not sent, or    the sender has noticed: over
//	         Abort was called
//	ending   the status is being sent                          over
//	over     the function of OnEnd has learned of the end      (final)
//
//	sending  meaning                                           leaves by
//	false    nothing is to be sent; there is no sender         start, for SendMsg, Close, end
//	true     the method has not returned, or a goroutine       work, when nothing is to be sent
//	         is, or is about to be, in work: the sender
type Stream struct {
	// immutable
	stream grpc.ServerStream
	call   rpc.Detached // zero: the method waits in hold
	held   *held        // nil: it doesn't

	mu sync.Mutex // never held while a message is sent or the user's code runs

	// guarded by mu
	unsent   []unsent // messages that the sender hasn't taken
	waits    int      // how many bytes they count, with the one that is being sent
	limit    int
	err      error       // the status of Close, or why it is dead
	onEnd    func(error) // nil: none
	sending  bool
	blocked  bool // the sender is in SendMsg
	closing  bool
	dead     bool
	ending   bool
	over     bool
	aborted  bool // dead because of the program
	dropping bool // a client that is slow
}

// unsent is a message that waits.
type unsent struct {
	m     any
	bytes int // that it counts
}

// defaultUnsent is how many bytes of messages a Stream holds for a slow client, without SetLimit.
const defaultUnsent = 64 << 10

const (
	messageExtra   = 64      // that each message counts, besides its own
	messageUnknown = 1 << 10 // that one counts whose length isn't known before it is encoded
)

var (
	// ErrSlowClient is the error of a SendMsg for which there is no room: see [Stream.SetLimit]. As a
	// status it is ResourceExhausted.
	ErrSlowClient = status.Error(codes.ResourceExhausted, "grpcadapter: the client takes the messages too slowly")

	// ErrStreamClosed is the error of a SendMsg after Close.
	ErrStreamClosed = errors.New("grpcadapter: the Stream is closed")

	errPanicked = status.Error(codes.Internal, "grpcadapter: a function of the program has panicked")
	errAborted  = status.Error(codes.Aborted, "grpcadapter: the stream was aborted")
)

// begin calls the function of Detach.
func (s *Stream) begin(f func(*Stream)) {
	returned := false
	defer func() {
		if !returned {
			s.end(errPanicked, true)
		}
	}()
	f(s)
	returned = true
}

// Context returns a context with the values of the stream's. It is cancelled when the call has ended.
// (An interceptor may cancel the stream's own when the method returns.)
func (s *Stream) Context() context.Context {
	of := s.stream.Context()
	if s.held != nil {
		return of
	}
	return joined{s.call.Context(), of}
}

// SendMsg sends a message behind those before it. As with a grpc.ServerStream, m must not be changed
// from then on, and may be sent to any number of Streams. SendMsg fails when the Stream has ended, and
// with ErrSlowClient when the limit is reached. A message that can't be sent, because it is too long,
// say, ends the Stream later.
func (s *Stream) SendMsg(m any) error {
	n := messageSize(m)
	s.mu.Lock()
	var err error
	switch {
	case s.dead:
		err = s.err
	case s.closing:
		err = ErrStreamClosed
	case s.waits > 0 && s.waits+n > s.limit:
		if err = ErrSlowClient; s.dropping {
			s.mu.Unlock()
			s.end(err, true)
			return err
		}
	default:
		s.unsent = append(s.unsent, unsent{m, n})
		s.waits += n
	}
	s.unlock()
	return err
}

// messageSize returns how many bytes a message counts.
func messageSize(m any) int {
	switch m := m.(type) {
	case proto.Message:
		return messageExtra + proto.Size(m)
	case protoadapt.MessageV1:
		return messageExtra + proto.Size(protoadapt.MessageV2Of(m))
	}
	return messageExtra + messageUnknown
}

// Close ends the call behind the messages that were sent, without waiting for the client: with the
// status of err, as if the method had returned it. Calls after the first have no effect.
func (s *Stream) Close(err error) {
	s.mu.Lock()
	if !s.closing && !s.dead {
		s.closing, s.err = true, err
	}
	s.unlock()
}

// Abort ends the call at once, with the status of err; nil is Aborted. Messages that wait are dropped.
// If the client isn't taking a message that is being sent, the stream is reset, and it sees Canceled.
func (s *Stream) Abort(err error) {
	if err == nil {
		err = errAborted
	}
	s.end(err, true)
}

// SetLimit sets how many bytes of messages may wait for a slow client, 64 KiB at first. A message
// counts 64 bytes besides its own, and 1 KiB if it isn't protobuf's. A SendMsg for which there is no
// room fails with ErrSlowClient, and with drop it also aborts the call with that status. One that finds
// nothing waiting may be longer. It panics if bytes is negative.
func (s *Stream) SetLimit(bytes int, drop bool) {
	if bytes < 0 {
		panic("grpcadapter: SetLimit was called with a negative number")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.dropping = bytes, drop
}

// Unsent returns how many bytes of messages wait to be sent, counted as for SetLimit.
func (s *Stream) Unsent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits
}

// OnEnd sets a function that is called once when the Stream has ended: with nil when all was sent after
// Close, and otherwise with a status: Canceled if the client has gone, DeadlineExceeded, or why a
// message was not sent. There is one function; f replaces it, and nil removes it. f must not block.
// Where the method waits in Detach f is called before the status is sent.
//
// No other method calls f, so a lock that f takes may be held while they are called. OnEnd calls f at
// once if the Stream has ended, which it can't have in Detach's begin: a lock may be held there, but not
// later.
func (s *Stream) OnEnd(f func(err error)) {
	s.mu.Lock()
	over, err := s.over, s.err
	if !over {
		s.onEnd = f
	}
	s.mu.Unlock()
	if over && f != nil {
		f(err)
	}
}

// Gone is for package rpc: the call has ended.
func (o *owner) Gone(err error) { (*Stream)(o).end(err, false) }

// Work is for package rpc: it is the sender's turn.
func (o *owner) Work() {
	s := (*Stream)(o)
	returned := false
	defer func() {
		if !returned {
			s.call.Drop()
			s.finish(errPanicked)
		}
	}()
	ends, err := s.work()
	if ends {
		err = s.call.End(err)
	}
	if returned = true; ends {
		s.finish(err)
	}
}

// owner is a Stream as the owner of its call.
type owner Stream

// end makes the Stream dead. It doesn't block. aborts says that the program wants it.
func (s *Stream) end(err error, aborts bool) {
	s.mu.Lock()
	if s.dead || s.ending || s.over {
		s.mu.Unlock()
		return
	}
	s.dead, s.aborted, s.err = true, aborts, err
	s.unsent = nil
	cuts := s.blocked && aborts // otherwise it fails by itself
	s.unlock()
	if cuts {
		s.cut()
	}
}

// cut makes a SendMsg that blocks fail.
func (s *Stream) cut() {
	if s.held != nil {
		s.held.cut(s.stream.Context())
	} else {
		s.call.Cut()
	}
}

// unlock unlocks mu, and starts a sender if there is something to do.
func (s *Stream) unlock() {
	start := !s.sending && !s.over && (len(s.unsent) > 0 || s.closing || s.dead)
	s.sending = s.sending || start
	s.mu.Unlock()
	switch {
	case !start:
	case s.held != nil:
		go s.workHeld()
	default:
		s.call.Resume()
	}
}

// work sends what is to be sent. Its caller is the sender. It returns false if it is no sender any more,
// and true, with the status to end the call with, if the call is to end. If a wrapper's SendMsg panics,
// or ends the goroutine, the Stream is dead.
func (s *Stream) work() (ends bool, err error) {
	s.mu.Lock()
	defer func() {
		if s.blocked { // without the lock
			s.mu.Lock()
			s.blocked, s.dead, s.err, s.unsent = false, true, errPanicked, nil
		}
		s.mu.Unlock()
	}()
	for {
		switch {
		case s.dead || s.over:
			return true, s.err
		case len(s.unsent) == 0 && s.closing:
			s.ending = true
			return true, s.err
		case len(s.unsent) == 0:
			s.unsent, s.sending = nil, false
			return false, nil
		}
		next := s.unsent[0]
		s.unsent[0] = unsent{}
		s.unsent = s.unsent[1:]
		s.blocked = true
		s.mu.Unlock()
		err := s.stream.SendMsg(next.m)
		s.mu.Lock()
		s.blocked = false
		s.waits -= next.bytes
		if err != nil && !s.aborted && !s.over { // it says more than that the call has ended
			s.dead, s.err, s.unsent = true, err, nil
		}
	}
}

// finish notes the end. failed is why not all was sent.
func (s *Stream) finish(failed error) {
	s.mu.Lock()
	if s.ending {
		s.err = failed
	}
	err, f := s.err, s.onEnd
	s.over, s.onEnd, s.unsent = true, nil, nil
	s.mu.Unlock()
	if f != nil {
		f(err)
	}
}

// held is the end of a method that waits in Detach.
type held struct {
	ended   chan struct{} // closed by the last sender
	aborted chan struct{} // closed if that can't be waited for
	once    sync.Once     // for aborted
}

// hold is Detach where the method must not return. Its senders are goroutines of their own, which don't
// stay when nothing is to be sent. It returns the method's result.
func (s *Stream) hold(begin func(*Stream)) error {
	h := &held{ended: make(chan struct{}), aborted: make(chan struct{})}
	s.held = h
	defer s.finish(nil)
	s.begin(begin)
	s.mu.Lock()
	s.sending = false
	s.unlock()
	select {
	case <-h.ended:
	case <-h.aborted:
	case <-s.stream.Context().Done():
		s.end(status.FromContextError(s.stream.Context().Err()).Err(), false)
		select {
		case <-h.ended:
		case <-h.aborted:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// workHeld is a sender's turn.
func (s *Stream) workHeld() {
	ends := true
	defer func() {
		if ends {
			close(s.held.ended)
		}
	}()
	ends, _ = s.work()
}

// cut makes a SendMsg of the stream's fail, or the method return without waiting for it: grpc-go's
// transport ends the SendMsg when that has returned.
func (h *held) cut(ctx context.Context) {
	if !rpc.Cut(ctx) {
		h.once.Do(func() { close(h.aborted) })
	}
}

// joined is a context with the values of another.
type joined struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (j joined) Value(key any) any { return j.values.Value(key) }

// AfterFunc is for package context: contexts that derive from j need no goroutine.
func (j joined) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(j.Context, f) }
