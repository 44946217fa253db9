package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/h2"
)

// attempt is one stream of a call.
//
// The answer is parsed in two steps: the header, and the end. The receiving goroutine does both,
// unless the sending goroutine needs the outcome.
//
//	answered  bare   ended  meaning
//	false     false  nil    the header has not come
//	true      false  nil    messages may come
//	true      false  set    the outcome is known, and messages may be left to receive
//	true      true   set    there is no message: the header was the outcome, or the stream has ended before
//	                        it, or could not be opened
type attempt struct {
	call   *clientCall
	ctx    context.Context // the call's context as the stats handler has tagged it
	began  time.Time
	stream h2.Stream
	conn   *clientConn // the last connection picked
	opened bool

	in messages // used by the receiving goroutine only

	mu sync.Mutex // held while waiting for the header; locked after the call's mu

	// guarded by mu
	answered, bare bool
	undo           func() bool // stops cancelling the stream with ctx; nil if ctx can't end
	cancels        bool        // undo came too late
	unserved       bool        // the server has not seen the call
	ended          *status.Status
	headerFields   []h2.Field  // nil without a header
	header         metadata.MD // made from headerFields on demand
	trailer        metadata.MD

	finished bool // guarded by the call's mu

	failed atomic.Pointer[status.Status] // the status given to finish; set before the stream is closed
}

// begin makes an attempt of a call.
func (a *attempt) begin(s *clientCall, transparent bool) {
	a.call, a.ctx = s, s.ctx
	a.in.codec = s.out.codec
	if sh := s.client.stats; sh != nil {
		a.began = time.Now()
		a.ctx = sh.TagRPC(a.ctx, &stats.RPCTagInfo{
			FullMethodName: s.method, FailFast: s.info.failFast, NameResolutionDelay: s.delayed,
		})
		sh.HandleRPC(a.ctx, &stats.Begin{
			Client: true, BeginTime: a.began, FailFast: s.info.failFast, IsClientStream: s.desc.ClientStreams,
			IsServerStream: s.desc.ServerStreams, IsTransparentRetryAttempt: transparent,
		})
	}
}

// beginAgain restarts an attempt whose connection took no stream. Only stats handlers see it.
func (a *attempt) beginAgain() {
	a.tellEnd(errDraining)
	a.begin(a.call, true)
}

var errDraining = status.New(codes.Unavailable, "the connection is draining")

// tellEnd reports the end of the attempt to the stats handler.
func (a *attempt) tellEnd(st *status.Status) {
	if sh := a.call.client.stats; sh != nil {
		sh.HandleRPC(a.ctx, &stats.End{
			Client: true, BeginTime: a.began, EndTime: time.Now(), Trailer: a.trailerMD(), Error: st.Err(),
		})
	}
}

// send sends op, after the header if that is still to be sent. The error is io.EOF if the stream has
// ended, or a status.
func (a *attempt) send(op *sending) error {
	m := memories.Get().(*memory)
	defer m.release()
	p, of := op.pieces, op.of
	if op.encodes {
		e, err := a.call.encode(op.message, m)
		defer e.free(a.call.client.config.Pool)
		if err != nil {
			return err
		}
		p, of, op.of = e.pieces, e.of, e.of
	}
	sent := false
	if !a.opened {
		if _, ended := a.known(); ended {
			return io.EOF
		}
		var err error
		if sent, err = a.open(m, &p, op.last); err != nil {
			a.notOpened(err)
			return err
		}
	}
	if len(p.first) == 0 && !op.last {
		if a.call.desc.ClientStreams { // other calls send their request at once
			_ = a.stream.Flush() // the next operation returns the error
		}
		return nil
	}
	if !sent && p.send(&a.stream, h2.Message{End: op.last}) != nil {
		return io.EOF // receiving tells why
	}
	if len(p.first) > 0 {
		of.sent(a.conn.counts, a.call.client.stats, a.ctx, true)
	}
	return nil
}

// notOpened ends an attempt that has no stream. If the attempt was a retry, the user may still call
// its methods.
func (a *attempt) notOpened(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered, a.bare, a.ended = true, true, status.Convert(err)
}

// known reports whether the outcome is known (ended), and whether it came without a message (bare).
func (a *attempt) known() (bare, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bare, a.ended != nil
}

// openBytes is the longest message, in bytes, sent with the header: h2 sends it without waiting.
const openBytes = 8 << 10

// open opens the stream. If p is short and the server takes it at once, open sends p too, and the end
// if last is set. Otherwise the header waits for the next message. The error is a status.
func (a *attempt) open(m *memory, p *pieces, last bool) (sent bool, err error) {
	s := a.call
	msg := h2.Message{Hold: true}
	if n := len(p.first); n > 0 && n <= openBytes && len(p.rest) == 0 {
		msg = h2.Message{Body: p.first, End: last, AtOnce: true}
	}
	for {
		blocked, err := a.pick()
		if err != nil {
			return false, err
		}
		sh := s.client.stats
		if sh != nil && blocked {
			sh.HandleRPC(a.ctx, &stats.DelayedPickComplete{})
		}
		authority, err := a.authority()
		if err != nil {
			return false, err
		}
		fields, err := a.fields(m.fields[:0], authority)
		if err != nil {
			return false, err
		}
		if a.overLimit(fields, authority) {
			return false, status.Errorf(codes.Internal, "header list size to send violates the maximum size (%d bytes) set by server", a.conn.hc.HeaderBytesMax())
		}
		err = a.conn.hc.Open(a.ctx, &a.stream, a.request(fields, authority), msg)
		switch {
		case err == nil, a.stream.Conn() != nil:
			a.begun(sh, authority)
			return err == nil && msg.Body != nil, nil
		case errors.Is(err, h2.ErrLeaving) && s.pinned != nil:
			return false, status.Error(codes.Canceled, "the provided transport is no longer valid to use")
		case errors.Is(err, h2.ErrLeaving):
			a.conn.link.Ended(a.conn.hc.Answered()) // so that it isn't picked again
			a.beginAgain()
		case a.ctx.Err() != nil:
			return false, status.FromContextError(a.ctx.Err()).Err()
		default:
			return false, status.Error(codes.Internal, err.Error())
		}
	}
}

// pick sets the connection. blocked reports whether pick may have waited for one. The error is a
// status.
func (a *attempt) pick() (blocked bool, err error) {
	s := a.call
	if s.pinned != nil {
		a.conn = s.pinned
		return false, nil
	}
	picked := s.client.Ready()
	if picked == nil {
		blocked = true
		if picked, err = s.client.Pick(a.ctx, !s.info.failFast); err != nil {
			return true, err
		}
	}
	a.conn = picked.(*clientConn)
	return blocked, nil
}

// begun records that the stream was opened.
func (a *attempt) begun(sh stats.Handler, authority string) {
	a.opened = true
	a.conn.counts.Add(countStarted, 1)
	if sh != nil { // it looks for the peer in ctx
		a.ctx = peer.NewContext(a.ctx, &a.conn.peer)
	}
	if a.ctx.Done() != nil {
		a.mu.Lock()
		a.undo = context.AfterFunc(a.ctx, a.cancelled)
		a.mu.Unlock()
	}
	if sh == nil {
		return
	}
	md, ok := metadata.FromOutgoingContext(a.ctx)
	if !ok {
		md = make(metadata.MD)
	}
	md.Set("user-agent", a.call.client.config.UserAgent)
	header := &stats.OutHeader{
		Client: true, FullMethod: a.call.method, RemoteAddr: a.conn.peer.Addr, LocalAddr: a.conn.peer.LocalAddr,
		Compression: a.call.info.compressorName, Header: md,
	}
	if hasAuthority {
		reflect.ValueOf(header).Elem().FieldByIndex(authorityField.Index).SetString(authority)
	}
	sh.HandleRPC(a.ctx, header)
}

// authorityField is in grpc-go since 1.85.
var authorityField, hasAuthority = reflect.TypeFor[stats.OutHeader]().FieldByName("Authority")

// cancelled resets the stream when the context ends. RecvMsg then returns the error and finishes the
// call. A streaming call may have no RecvMsg under way, so cancelled finishes it here.
func (a *attempt) cancelled() {
	a.stream.Reset(h2.Cancel)
	if a.call.desc != unaryDesc {
		a.call.finish(status.FromContextError(a.ctx.Err()).Err())
	}
}

// awaitBytes is how many bytes of a unary call's message recv waits for at once.
const awaitBytes = 32 << 10

// awaitHeader waits for the header of the answer. If no header comes, the error is the outcome of the
// stream: io.EOF for success, or a status.
func (a *attempt) awaitHeader() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.awaitHeaderLocked()
}

func (a *attempt) awaitHeaderLocked() error {
	if !a.answered {
		if d := a.call.desc; d != unaryDesc && !d.ClientStreams {
			_ = a.stream.Flush() // the caller may have broken the rules and not sent the request
		}
		answer, err := a.stream.Answer()
		a.answered = true
		if err != nil {
			a.ended = a.failure(err)
		} else {
			a.takeHeader(&answer)
		}
		a.bare = a.ended != nil
	}
	if a.bare {
		return endedError(a.ended)
	}
	return nil
}

// endedError returns the outcome of a stream as an error.
func endedError(st *status.Status) error {
	if st.Code() == codes.OK {
		return io.EOF
	}
	return st.Err()
}

// takeHeader parses the header of the answer.
func (a *attempt) takeHeader(answer *h2.Answer) {
	var p answerParser
	p.parse(answer.Fields, answer.End)
	switch {
	case p.malformed != nil:
		a.ended = p.malformed
	case !p.isGRPC:
		a.ended = a.notGRPC(answer, p.contentType)
	case p.wrong != "":
		a.ended = status.New(codes.Internal, p.wrong)
	case answer.End:
		a.takeTrailers(&p)
		return
	default:
		a.headerFields = answer.Fields
		if p.encoding != "" {
			a.in.compression().encoding = p.encoding
			a.in.compressed.decompressor = encoding.GetCompressor(p.encoding)
		}
		if sh := a.call.client.stats; sh != nil {
			sh.HandleRPC(a.ctx, &stats.InHeader{Client: true, Header: a.headerLocked().Copy(), Compression: p.encoding})
		}
		return
	}
	a.stream.Reset(h2.ProtocolError)
}

// takeTrailers sets the outcome and the trailers from the end of an answer.
func (a *attempt) takeTrailers(p *answerParser) {
	switch {
	case p.malformed != nil:
		a.ended = p.malformed
	case p.wrong != "":
		a.ended = status.New(codes.Internal, p.wrong)
	default:
		a.ended = p.status()
	}
	a.trailer = p.md
	if sh := a.call.client.stats; sh != nil {
		sh.HandleRPC(a.ctx, &stats.InTrailer{Client: true, Trailer: a.trailer.Copy()})
	}
}

// notGRPCBytes is how many bytes of an answer that isn't gRPC go into the status, as in grpc-go.
const notGRPCBytes = 1024

// notGRPC returns the status for an answer that isn't gRPC.
func (a *attempt) notGRPC(answer *h2.Answer, contentType string) *status.Status {
	code := codeOf(codeOfHTTP, answer.Status)
	text := fmt.Sprintf("unexpected HTTP status code received from server: %d (%s); %s", answer.Status, http.StatusText(answer.Status), contentType)
	if !answer.End {
		p := make([]byte, notGRPCBytes)
		n, err := a.stream.ReadFull(p)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return a.failure(err)
		}
		text += fmt.Sprintf("\ndata: %q", p[:n])
	}
	return status.New(code, text)
}

// recv receives a message into v. If v is nothing, recv expects the end of the stream. The error is
// the outcome of the stream: io.EOF for success, or a status.
func (a *attempt) recv(v any) error {
	if err := a.awaitHeader(); err != nil {
		return a.checkReceived(err)
	}
	flag, wire, err := a.in.receiveHead(a)
	if err == io.EOF {
		a.mu.Lock()
		a.takeEndLocked()
		st := a.ended
		a.mu.Unlock()
		return a.checkReceived(endedError(st))
	}
	if err != nil {
		return statusError(err)
	}
	if v == nothing {
		return nil
	}
	if a.call.desc == unaryDesc && wire > 0 {
		a.stream.AwaitEnd(min(wire, awaitBytes))
	}
	if z := a.in.compressed; flag == 1 && z != nil && z.encoding != encoding.Identity && z.decompressor == nil {
		return status.Errorf(codes.Internal, "grpc: Decompressor is not installed for grpc-encoding %q", z.encoding)
	}
	of, err := a.in.receive(a, v, flag, wire)
	if err != nil {
		return statusError(err)
	}
	a.call.received = true
	of.received(a.conn.counts, a.call.client.stats, a.ctx, true)
	return nil
}

// exchange sends the message of a unary call and receives the answer. The server's status follows the
// message: once the message has come, the call is not retried.
func (a *attempt) exchange(op *sending, reply any) error {
	s := a.call
	if err := a.send(op); err != nil && err != io.EOF { // recv returns the status for io.EOF
		return err
	}
	if op.of.compressedLength > s.info.retryMost {
		s.commit()
	}
	if err := s.leftErr(); err != nil {
		return err
	}
	if err := a.recv(reply); err != nil {
		return err
	}
	s.commit()
	return onlyOne(a.recv(nothing))
}

// checkReceived returns err, or a status if a call that expects one message has succeeded without it.
func (a *attempt) checkReceived(err error) error {
	if err == io.EOF && !a.call.desc.ServerStreams && !a.call.received {
		return status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")
	}
	return err
}

// takeEndLocked parses the trailers of an answer whose body has ended.
func (a *attempt) takeEndLocked() {
	if a.ended != nil {
		return
	}
	fields := a.stream.Trailers()
	if fields == nil {
		a.ended = status.New(codes.Internal, "server closed the stream without sending trailers")
		return
	}
	var p answerParser
	p.parse(fields, true)
	a.takeTrailers(&p)
}

// readFull implements receiver.
func (a *attempt) readFull(p []byte) error {
	_, err := a.stream.ReadFull(p)
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended == nil {
		a.ended = a.failure(err)
	}
	return endedError(a.ended)
}

// buffered implements receiver.
func (a *attempt) buffered() int { return a.stream.Buffered() }

// limits implements receiver.
func (a *attempt) limits() (pool mem.BufferPool, most int) {
	return a.call.client.config.Pool, a.call.info.receiveMost
}

// outcome returns the status of a stream that has ended or takes no more. It may wait for the end.
func (a *attempt) outcome() *status.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _ = a.awaitHeaderLocked(); a.ended != nil {
		return a.ended
	}
	a.stream.AwaitEnd(math.MaxInt)
	if err := a.stream.Err(); err != nil && a.stream.Trailers() == nil {
		a.ended = a.failure(err)
	} else {
		a.takeEndLocked()
	}
	return a.ended
}

// statusOf returns the status of an attempt that has failed with an error.
func (a *attempt) statusOf(err error) *status.Status {
	if err == io.EOF {
		return a.outcome()
	}
	return status.Convert(err)
}

// headerMD returns the header, or nil if it has not come.
func (a *attempt) headerMD() metadata.MD {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.headerLocked()
}

// trailerMD returns the trailers, never nil: as with grpc-go, callers may add to them.
func (a *attempt) trailerMD() metadata.MD {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trailer == nil {
		return make(metadata.MD)
	}
	return a.trailer
}

// headerLocked returns the header, or nil if it has not come. Most callers don't need it.
func (a *attempt) headerLocked() metadata.MD {
	if a.header == nil && a.headerFields != nil {
		var p answerParser
		p.parse(a.headerFields, true)
		a.header = p.md
	}
	return a.header
}

// failure returns the status of a stream that h2 has ended.
func (a *attempt) failure(err error) *status.Status {
	var reset *h2.StreamError
	var gone *h2.ConnError
	switch {
	case errors.As(err, &reset) && reset.Remote:
		if errors.Is(reset.Err, h2.ErrUnserved) {
			a.unserved = true
			return errDraining
		}
		a.unserved = reset.Code == h2.RefusedStream
		code := codeOf(codeOfReset, reset.Code)
		if deadline, ok := a.ctx.Deadline(); ok && code == codes.Canceled && !deadline.After(time.Now()) {
			code = codes.DeadlineExceeded
		}
		return status.Newf(code, "stream terminated by RST_STREAM with error code: %v", reset.Code)
	case a.failed.Load() != nil:
		return a.failed.Load()
	case a.call.client.closed.Load():
		return status.Convert(errClientClosing)
	case errors.As(err, &gone):
		return a.conn.lost(err)
	case a.ctx.Err() != nil:
		return status.FromContextError(a.ctx.Err())
	case reset != nil && reset.Err != nil && !errors.Is(reset.Err, os.ErrDeadlineExceeded):
		return status.New(codes.Internal, reset.Err.Error())
	}
	return status.New(codes.Internal, err.Error())
}

// finish ends the attempt with its outcome. Calls after the first do nothing.
func (a *attempt) finish(st *status.Status) {
	if a.finished {
		return
	}
	a.finished = true
	if a.opened {
		a.failed.Store(st)
		a.stream.Close() // before locking mu, which others hold while they wait for the stream
		a.conn.counts.Add(ended(st.Code()), 1)
		a.mu.Lock()
		if a.undo != nil {
			a.cancels = !a.undo()
		}
		a.mu.Unlock()
	}
	a.tellEnd(st)
}
