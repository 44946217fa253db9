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
	"github.com/percore/percore/internal/shared/detached"
)

// Detach lets a stream go on after its method has returned, for watches and the like. It calls begin
// with an [Answer], the rest of the stream, which any goroutine may send to. Call it last in the
// method, and return its result:
//
//	func (s *service) Watch(in *pb.WatchRequest, stream pb.Service_WatchServer) error {
//		return grpcadapter.Detach(stream, func(st *grpcadapter.Stream) { s.add(in.Key, st) })
//	}
//
// In a [Server], and in a grpc.Server that [Wrap] serves past grpc-go's transport, Detach returns
// when begin does. The method then returns, and the call waits without a goroutine. For the client,
// stats handlers and GracefulStop the call ends when the Answer does. If the method or an
// interceptor returns an error after Detach, the call ends with that error.
//
// Elsewhere Detach returns only when the Answer has ended, with the result for the method to return:
// where grpc-go's transport serves, in ServeHTTP, and if there are stream interceptors. Interceptors
// would take the method's return for the end of the call; the option [DetachInterceptors] allows
// that. The same program works both ways.
//
// In begin, register the Answer where others find it. Messages are sent after the method has
// returned, through stream, so its wrappers see each of them. Use stream to set headers and
// trailers, before Close, but don't send with it. Another goroutine may receive from it.
//
// Detach fails, without calling begin, if stream is detached already, or the method has returned.
func Detach(stream grpc.ServerStream, begin func(*Answer)) error {
	if stream == nil || begin == nil {
		return status.Error(codes.Internal, "grpcadapter: Detach was called with a nil grpc.ServerStream or function")
	}
	s := &Answer{stream: stream}
	s.sender.Init((*sending)(s))
	ok, err := rpc.Detach(stream.Context(), &s.call, (*sending)(s))
	switch {
	case err != nil:
		return status.Error(codes.Internal, err.Error())
	case !ok:
		return s.hold(begin)
	}
	s.sender.Begin(func() { begin(s) })
	return nil
}

// An Answer is the rest of a call that [Detach] has detached. Any goroutine may call its methods,
// which never wait for the client.
//
// A goroutine of the server sends the messages to the client, one after the other. If they come
// faster than the client takes them, they wait in memory, up to a limit: see SetLimit.
//
// The state is the sender's: see [detached.Sender].
type Answer struct {
	sender detached.Sender[unsent, *sending]

	// immutable
	stream grpc.ServerStream
	call   rpc.Detached // zero: the method waits in hold
	held   *held        // nil: it doesn't

	status error // with which the call ends after all messages; guarded by the sender's lock, immutable once closed
}

// unsent is a message that waits.
type unsent struct {
	m     any
	bytes int // what it counts for
}

const (
	messageExtra   = 64      // counted for each message besides its own length
	messageUnknown = 1 << 10 // counted for a message whose length isn't known before it is encoded
)

var (
	// ErrSlowClient is the error of SendMsg at the limit: see [Answer.SetLimit]. As a status it is
	// ResourceExhausted.
	ErrSlowClient = status.Error(codes.ResourceExhausted, "grpcadapter: the client takes the messages too slowly")

	// ErrAnswerClosed is the error of a SendMsg after Close.
	ErrAnswerClosed = errors.New("grpcadapter: the Answer is closed")

	errPanicked = status.Error(codes.Internal, "grpcadapter: a function of the program has panicked")
	errAborted  = status.Error(codes.Aborted, "grpcadapter: the stream was aborted")

	senderErrors = detached.Errors{
		Slow: ErrSlowClient, Closed: ErrAnswerClosed, Panicked: errPanicked,
		Gone: status.Error(codes.Canceled, "grpcadapter: the client has gone"),
	}
)

// Context returns a context with the values of the stream's context. It is cancelled when the call
// has ended. (An interceptor may cancel the stream's own context when the method returns.)
func (s *Answer) Context() context.Context {
	of := s.stream.Context()
	if s.held != nil {
		return of
	}
	return detached.Join(s.call.Context(), of)
}

// SendMsg sends a message after the ones before it. As with a grpc.ServerStream, m must not be
// changed afterwards, and may be sent to any number of Answers. SendMsg fails when the Answer has
// ended, and with ErrSlowClient when the limit is reached. A message that can't be sent, for example
// because it is too long, ends the Answer later.
func (s *Answer) SendMsg(m any) error {
	n := messageSize(m)
	s.sender.Lock()
	defer s.sender.Unlock()
	if err := s.sender.AdmitLocked(n); err != nil {
		return err
	}
	s.sender.AddLocked(n, unsent{m, n})
	s.sender.FlushLocked()
	return nil
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

// Close ends the call after the messages that were sent, as if the method had returned nil, and
// doesn't wait for the client. If the Answer has already ended, Close returns why. Calls after the
// first have no effect.
func (s *Answer) Close() error { return s.CloseWithError(nil) }

// CloseWithError is Close with the status of err, as if the method had returned it.
func (s *Answer) CloseWithError(err error) error {
	s.sender.Lock()
	defer s.sender.Unlock()
	if s.sender.IsOpenLocked() {
		s.status = err
	}
	return s.sender.CloseLocked()
}

// Abort ends the call at once, with the status of err; nil means Aborted. Waiting messages are
// dropped. If the client isn't taking a message that is being sent, the stream is reset, and the
// client sees Canceled.
func (s *Answer) Abort(err error) {
	if err == nil {
		err = errAborted
	}
	s.sender.End(err, true)
}

// SetLimit sets how many bytes of messages may wait for a slow client; the default is 64 KiB. A
// message counts as its length plus 64 bytes, or as 1 KiB if it isn't a protobuf message. Beyond the
// limit SendMsg fails with ErrSlowClient, and with drop also aborts the call with that status. A
// message that finds none waiting may be longer. SetLimit panics if bytes is negative.
func (s *Answer) SetLimit(bytes int, drop bool) {
	if bytes < 0 {
		panic("grpcadapter: SetLimit was called with a negative number")
	}
	s.sender.SetLimit(bytes, drop)
}

// Unsent returns how many bytes of messages wait to be sent, counted as for SetLimit.
func (s *Answer) Unsent() int { return s.sender.Unsent() }

// OnEnd sets a function that is called once when the Answer has ended: with nil when everything was
// sent after Close, and otherwise with a status: Canceled if the client is gone, DeadlineExceeded,
// or why a message was not sent. There is only one function; f replaces it, and nil removes it. f
// must not block. Where the method waits in Detach, f is called before the status is sent.
//
// No other method calls f, so the caller of other methods may hold a lock that f takes. OnEnd itself
// calls f at once if the Answer has ended. That can't happen in Detach's begin: only there may the
// lock be held for OnEnd.
func (s *Answer) OnEnd(f func(err error)) { s.sender.OnEnd(f) }

// sending is an Answer in its role as the outlet of its sender and the owner of its call.
type sending Answer

// Gone implements [rpc.Owner]. A message that is being sent fails by itself.
func (s *sending) Gone(err error) { s.sender.End(err, false) }

// Work implements [rpc.Owner]: it is the sender's turn. A function of the program may panic in it.
func (s *sending) Work() {
	returned := false
	defer func() {
		if !returned {
			s.sender.End(errPanicked, false)
			s.call.Drop()
			s.sender.Finish(false)
		}
	}()
	over, sent := s.sender.Work()
	if returned = true; over {
		s.sender.Finish(sent)
	}
}

// Send implements [detached.Outlet]. A wrapper's SendMsg may panic, or end the goroutine.
func (s *sending) Send(messages []unsent, _ int, _ bool) (goesOn bool, err error) {
	returned := false
	defer func() {
		if !returned {
			s.sender.End(errPanicked, false)
		}
	}()
	for i := range messages {
		next := messages[i]
		messages[i] = unsent{} // it may be long
		if err = s.stream.SendMsg(next.m); err != nil || !s.sender.Sent(next.bytes) {
			break
		}
	}
	returned = true
	return false, err
}

// End implements [detached.Outlet].
func (s *sending) End(cut error) error {
	switch {
	case s.held != nil: // the method returns the status
		return nil
	case cut != nil:
		return s.call.End(cut)
	}
	return s.call.End(s.status)
}

// IsWhole implements [detached.Outlet].
func (s *sending) IsWhole() bool { return false }

// Errors implements [detached.Outlet].
func (s *sending) Errors() *detached.Errors { return &senderErrors }

// Start implements [detached.Outlet].
func (s *sending) Start() {
	if s.held != nil {
		go s.workHeld()
	} else {
		s.call.Resume()
	}
}

// Cut implements [detached.Outlet].
func (s *sending) Cut() {
	if s.held != nil {
		s.held.cut(s.stream.Context())
	} else {
		s.call.Cut()
	}
}

// held is the end of a method that waits in Detach.
type held struct {
	ended   chan struct{} // closed by the last sender
	aborted chan struct{} // closed if the method can't wait for that
	once    sync.Once     // for aborted
}

// hold is Detach where the method must not return. Its senders are goroutines of their own, which
// end when there is nothing to send. It returns the method's result.
func (s *Answer) hold(begin func(*Answer)) error {
	h := &held{ended: make(chan struct{}), aborted: make(chan struct{})}
	s.held = h
	defer s.sender.Finish(true) // unless it is dead
	s.sender.Begin(func() { begin(s) })
	(*sending)(s).Start()
	select {
	case <-h.ended:
	case <-h.aborted:
	case <-s.stream.Context().Done():
		s.sender.End(status.FromContextError(s.stream.Context().Err()).Err(), false)
		select {
		case <-h.ended:
		case <-h.aborted:
		}
	}
	s.sender.Lock()
	defer s.sender.Unlock()
	if s.sender.IsOverLocked() {
		return s.status
	}
	return s.sender.ErrLocked()
}

// workHeld is a sender's turn.
func (s *sending) workHeld() {
	over := true
	defer func() {
		if over {
			close(s.held.ended)
		}
	}()
	over, _ = s.sender.Work()
}

// cut makes a SendMsg of the stream fail, or the method return without waiting for it: grpc-go's
// transport ends the SendMsg when the method has returned.
func (h *held) cut(ctx context.Context) {
	if !rpc.Cut(ctx) {
		h.once.Do(func() { close(h.aborted) })
	}
}
