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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/percore/percore/adapters/grpcadapter/internal/channel"
	"github.com/percore/percore/adapters/h2"
)

// attempt is one stream of a call.
//
// The answer is understood in two steps: the header, and the end. The goroutine that receives takes
// both, unless the sending goroutine has to know the outcome.
//
//	answered  bare   ended  meaning
//	false     false  nil    the header has not come
//	true      false  nil    messages may come
//	true      false  set    the outcome is known, and messages may be left to receive
//	true      true   set    there is no message: the header was the outcome, or the stream has ended before
//	                        it, or could not be opened
type attempt struct {
	call   *clientCall
	ctx    context.Context // the call's, with what the stats handler has put there
	began  time.Time
	stream h2.Stream
	conn   *clientConn // the last that was picked
	opened bool

	in messages // of the goroutine that receives

	mu sync.Mutex // held while the header is waited for; behind the call's

	// guarded by mu
	answered, bare bool
	undo           func() bool // stops the cancelling of the stream with the context; nil: it can't end
	cancels        bool        // undo came too late
	unserved       bool        // the server has not seen it
	ended          *status.Status
	headerFields   []h2.Field  // nil: there is none
	header         metadata.MD // made of them when it is asked for
	trailer        metadata.MD

	finished bool // guarded by the call's mu

	failed atomic.Pointer[status.Status] // what finish got, before it has closed the stream
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

// beginAgain replaces an attempt whose connection has not taken the stream. Only stats handlers see it.
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

// send sends something, and the header before it. The error is io.EOF if the stream has ended, or a
// status.
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
		if a.hasEnded() {
			return io.EOF
		}
		var err error
		if sent, err = a.open(m, &p, op.last); err != nil {
			a.notOpened(err)
			return err
		}
	}
	if len(p.first) == 0 && !op.last {
		if a.call.desc.ClientStreams { // the request of the others follows at once
			_ = a.stream.Flush() // an error comes with what is done next
		}
		return nil
	}
	if !sent && p.send(&a.stream, h2.Message{End: op.last}) != nil {
		return io.EOF // what is received says why
	}
	if len(p.first) > 0 {
		of.sent(a.conn.counts, a.call.client.stats, a.ctx, true)
	}
	return nil
}

// notOpened ends an attempt that has no stream. The user may go on to call its methods if it was to
// replace another one.
func (a *attempt) notOpened(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered, a.bare, a.ended = true, true, status.Convert(err)
}

// hasEnded reports whether the outcome is known.
func (a *attempt) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended != nil
}

// isBare reports whether the outcome is known and came without a message.
func (a *attempt) isBare() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bare
}

// openBytes is the length of the longest message that goes with the header: h2 sends it without waiting.
const openBytes = 8 << 10

// open opens the stream. It sends p, with the end if that is the last message, if that is short and the
// server takes it at once; else the header waits for what is sent next. The error is a status.
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
			a.conn.link.Ended(a.conn.hc.Answered()) // it isn't picked again
			a.beginAgain()
		case a.ctx.Err() != nil:
			return false, status.FromContextError(a.ctx.Err()).Err()
		default:
			return false, status.Error(codes.Internal, err.Error())
		}
	}
}

// pick sets the connection. blocked says that it may have had to wait for one. The error is a status.
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

// begun is for a stream that was opened.
func (a *attempt) begun(sh stats.Handler, authority string) {
	a.opened = true
	a.conn.counts.Add(countStarted, 1)
	if sh != nil { // which looks for the peer there
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

// authorityField is a field that grpc-go has since 1.85.
var authorityField, hasAuthority = reflect.TypeFor[stats.OutHeader]().FieldByName("Authority")

// cancelled is for a context that has ended. RecvMsg returns that, and finishes the call. A stream may
// have no RecvMsg under way, so its call is finished here.
func (a *attempt) cancelled() {
	a.stream.Reset(h2.Cancel)
	if a.call.desc != unaryDesc {
		a.call.finish(status.FromContextError(a.ctx.Err()).Err())
	}
}

// authority returns the :authority. One that the call brings must be a name that the server has proved
// to have.
func (a *attempt) authority() (string, error) {
	own := a.call.info.authority
	if own == "" {
		return a.conn.name, nil
	}
	info := a.conn.peer.AuthInfo
	validator, ok := info.(credentials.AuthorityValidator)
	if !ok {
		kind := "none"
		if info != nil {
			kind = info.AuthType()
		}
		return "", status.Errorf(codes.Unavailable, "credentials type %q does not implement the AuthorityValidator interface, "+
			"but authority override specified with CallAuthority call option", kind)
	}
	if err := validator.ValidateAuthority(own); err != nil {
		return "", status.Errorf(codes.Unavailable, "failed to validate authority %q : %v", own, err)
	}
	return own, nil
}

// request returns the header.
func (a *attempt) request(fields []h2.Field, authority string) *h2.Request {
	return &h2.Request{
		Method: http.MethodPost, Scheme: a.call.client.scheme, Path: a.call.method, Authority: authority, HasAuthority: true, Fields: fields,
	}
}

// overLimit reports whether the server doesn't take a header.
func (a *attempt) overLimit(fields []h2.Field, authority string) bool {
	most := a.conn.hc.HeaderBytesMax()
	if most == 0 {
		return false
	}
	n := 4*32 + len(":method:scheme:path:authorityPOSThttps") + len(a.call.method) + len(authority)
	for i := range fields {
		n += fields[i].Size()
	}
	return n > most
}

var teTrailers = h2.MakeField("te", "trailers")

// fields returns the fields of the header, in grpc-go's order. It asks the credentials first, since they
// may take a part of the time that is left.
func (a *attempt) fields(to []h2.Field, authority string) ([]h2.Field, error) {
	s := a.call
	creds, err := a.credsFields(authority)
	if err != nil {
		return nil, err
	}
	kind := plainType
	if s.info.subtype != "" {
		kind = h2.MakeField("content-type", "application/grpc+"+s.info.subtype)
	}
	to = append(to, kind, s.client.userAgent, teTrailers)
	if s.retries > 0 {
		to = append(to, h2.MakeField("grpc-previous-rpc-attempts", strconv.Itoa(s.retries)))
	}
	if name := s.info.compressorName; name != "" {
		to = append(to, h2.MakeField("grpc-encoding", name))
	}
	if s.client.accepts.Value != "" {
		to = append(to, s.client.accepts)
	}
	if deadline, ok := a.ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
		}
		to = append(to, h2.MakeField("grpc-timeout", encodeTimeout(left)))
	}
	to = append(to, creds...)
	md := s.md
	if s.client.stats != nil { // which may have added some
		md, _ = metadata.FromOutgoingContext(a.ctx)
	}
	return appendMetadata(to, md), nil
}

// credsFields returns what the per-RPC credentials bring. Of several for all calls the last one counts
// that brings a name.
func (a *attempt) credsFields(authority string) (fields []h2.Field, err error) {
	s := a.call
	if len(s.client.config.PerRPC) == 0 && s.info.creds == nil {
		return nil, nil
	}
	ctx := credentials.NewContextWithRequestInfo(peer.NewContext(a.ctx, &a.conn.peer), credentials.RequestInfo{Method: s.method, AuthInfo: a.conn.peer.AuthInfo})
	audience := "https://" + strings.TrimSuffix(authority, ":443")
	if i := strings.LastIndexByte(s.method, '/'); i >= 0 {
		audience += s.method[:i]
	} else {
		audience += s.method
	}
	ofAll := make(map[string]string)
	for _, creds := range s.client.config.PerRPC {
		if err := askCreds(ofAll, ctx, creds, audience, codes.Unauthenticated); err != nil {
			return nil, err
		}
	}
	fields = appendCreds(fields, ofAll)
	if creds := s.info.creds; creds != nil {
		if creds.RequireTransportSecurity() && a.conn.insecure() {
			return nil, status.Error(codes.Unauthenticated, "transport: cannot send secure credentials on an insecure connection")
		}
		ofCall := make(map[string]string)
		if err := askCreds(ofCall, ctx, creds, audience, codes.Internal); err != nil {
			return nil, err
		}
		fields = appendCreds(fields, ofCall)
	}
	return fields, nil
}

// askCreds adds what credentials bring to a map. An error that is no status gets the code.
func askCreds(to map[string]string, ctx context.Context, creds credentials.PerRPCCredentials, audience string, code codes.Code) error {
	data, err := creds.GetRequestMetadata(ctx, audience)
	if err != nil {
		st, ok := status.FromError(err)
		switch {
		case !ok:
			return status.Errorf(code, "transport: per-RPC creds failed due to error: %v", err)
		case channel.IsRestricted(st.Code()):
			return status.Errorf(codes.Internal, "transport: received per-RPC creds error with illegal status: %v", err)
		}
		return err
	}
	for name, value := range data {
		name = strings.ToLower(name)
		if err := validate(metadata.MD{name: {value}}); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		to[name] = value
	}
	return nil
}

func appendCreds(to []h2.Field, data map[string]string) []h2.Field {
	for name, value := range data {
		to = append(to, h2.MakeField(name, encodeValue(name, value)))
	}
	return to
}

// awaitBytes is how much of the message of a unary call is waited for at once.
const awaitBytes = 32 << 10

// awaitHeader waits for the header of the answer. The error is the outcome of the stream, io.EOF for
// success, if there is none.
func (a *attempt) awaitHeader() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.awaitHeaderLocked()
}

func (a *attempt) awaitHeaderLocked() error {
	if !a.answered {
		if d := a.call.desc; d != unaryDesc && !d.ClientStreams {
			_ = a.stream.Flush() // its request may not have been sent, against the rules
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

// takeHeader understands the header of the answer.
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

// takeTrailers understands the end of an answer.
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

// notGRPCBytes is how much of an answer that is not gRPC's goes into the status, as in grpc-go.
const notGRPCBytes = 1024

// notGRPC returns the status of an answer that is not gRPC's.
func (a *attempt) notGRPC(answer *h2.Answer, contentType string) *status.Status {
	code, ok := codeOfHTTP[answer.Status]
	if !ok {
		code = codes.Unknown
	}
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

var codeOfHTTP = map[int]codes.Code{
	http.StatusBadRequest:         codes.Internal,
	http.StatusUnauthorized:       codes.Unauthenticated,
	http.StatusForbidden:          codes.PermissionDenied,
	http.StatusNotFound:           codes.Unimplemented,
	http.StatusTooManyRequests:    codes.Unavailable,
	http.StatusBadGateway:         codes.Unavailable,
	http.StatusServiceUnavailable: codes.Unavailable,
	http.StatusGatewayTimeout:     codes.Unavailable,
}

// recv receives a message, or what is behind the last one if v is nothing. The error is the outcome of
// the stream: io.EOF for success, or a status.
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

// exchange sends the message of a unary call, and receives the answer. The server's status is behind
// that: once the message is there, the call is not tried again.
func (a *attempt) exchange(op *sending, reply any) error {
	s := a.call
	if err := a.send(op); err != nil && err != io.EOF { // which recv finds out
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

// checkReceived returns another error if a call of one answer has succeeded without it.
func (a *attempt) checkReceived(err error) error {
	if err == io.EOF && !a.call.desc.ServerStreams && !a.call.received {
		return status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")
	}
	return err
}

// takeEndLocked understands the end of an answer whose body has ended.
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

// outcome returns the status of a stream that has ended, or that takes nothing more. It may wait for the
// end.
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

// headerMD returns the header, or nil if there is none yet.
func (a *attempt) headerMD() metadata.MD {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.headerLocked()
}

// trailerMD returns the trailers. It is never nil: as with grpc-go, callers may add to it.
func (a *attempt) trailerMD() metadata.MD {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.trailer == nil {
		return make(metadata.MD)
	}
	return a.trailer
}

// headerLocked returns the header, or nil if there is none. Most callers don't ask for it.
func (a *attempt) headerLocked() metadata.MD {
	if a.header == nil && a.headerFields != nil {
		var p answerParser
		p.parse(a.headerFields, true)
		a.header = p.md
	}
	return a.header
}

// codeOfReset are the codes of streams that a server has reset. Others are Unknown.
var codeOfReset = map[h2.ErrCode]codes.Code{
	h2.NoError: codes.Internal, h2.ProtocolError: codes.Internal, h2.InternalError: codes.Internal,
	h2.FlowControlError: codes.ResourceExhausted, h2.SettingsTimeout: codes.Internal, h2.StreamClosed: codes.Internal,
	h2.FrameSizeError: codes.Internal, h2.RefusedStream: codes.Unavailable, h2.Cancel: codes.Canceled,
	h2.CompressionError: codes.Internal, h2.ConnectError: codes.Internal, h2.EnhanceYourCalm: codes.ResourceExhausted,
	h2.InadequateSecurity: codes.PermissionDenied, h2.HTTP11Required: codes.Internal,
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
		code, ok := codeOfReset[reset.Code]
		if !ok {
			code = codes.Unknown
		}
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

// finish ends an attempt whose outcome is known. It does nothing the second time.
func (a *attempt) finish(st *status.Status) {
	if a.finished {
		return
	}
	a.finished = true
	if a.opened {
		a.failed.Store(st)
		a.stream.Close() // before mu, which others hold while they wait for the stream
		a.conn.counts.Add(ended(st.Code()), 1)
		a.mu.Lock()
		if a.undo != nil {
			a.cancels = !a.undo()
		}
		a.mu.Unlock()
	}
	a.tellEnd(st)
}

// answerParser understands the fields of a header or of trailers, in grpc-go's words.
type answerParser struct {
	isGRPC      bool
	contentType string // why it isn't
	encoding    string
	code        codes.Code
	message     string
	wrong       string         // the last field that is malformed
	malformed   *status.Status // of a grpc-status that is no number
	keeps       bool           // md is wanted
	md          metadata.MD
}

func (p *answerParser) parse(fields []h2.Field, keep bool) {
	p.keeps = keep
	p.contentType, p.code = "malformed header: missing HTTP content-type", codes.Unknown
	for i := range fields {
		f := &fields[i]
		switch name := f.Name.String(); name {
		case "content-type":
			if _, ok := subtypeOf(f.Value); !ok {
				p.contentType = fmt.Sprintf("transport: received unexpected content-type %q", f.Value)
				continue
			}
			p.isGRPC = true
			p.add(name, f.Value)
		case "grpc-encoding":
			p.encoding = f.Value
		case "grpc-status":
			code, err := strconv.ParseInt(f.Value, 10, 32)
			if err != nil {
				p.malformed = status.New(codes.Unknown, fmt.Sprintf("transport: malformed grpc-status: %v", err))
				return
			}
			p.code = codes.Code(uint32(code))
		case "grpc-message":
			p.message = decodeMessage(f.Value)
		case "user-agent":
			p.add(name, f.Value)
		default:
			p.metadata(name, f.Value)
		}
	}
}

func (p *answerParser) metadata(name, value string) {
	if isReserved(name) {
		return
	}
	v, err := decodeValue(name, value)
	if err != nil {
		p.wrong = fmt.Sprintf("transport: malformed %s: %v", name, err)
		return
	}
	p.add(name, v)
}

func (p *answerParser) add(name, value string) {
	if !p.keeps {
		return
	}
	if p.md == nil {
		p.md = make(metadata.MD)
	}
	p.md[name] = append(p.md[name], value)
}

var okStatus = status.New(codes.OK, "")

// status returns the status that the fields say, with its details.
func (p *answerParser) status() *status.Status {
	if p.code == codes.OK && p.message == "" && p.md[detailsName] == nil {
		return okStatus
	}
	if details := p.md[detailsName]; len(details) == 1 {
		st := status.New(codes.Unknown, "").Proto()
		switch err := proto.Unmarshal([]byte(details[0]), st); {
		case err != nil:
		case st.GetCode() == int32(p.code):
			return status.FromProto(st)
		default:
			return status.Newf(codes.Internal, "grpc-status-details-bin mismatch: grpc-status=%v, grpc-message=%q, grpc-status-details-bin=%+v",
				p.code, p.message, st)
		}
	}
	return status.New(p.code, p.message)
}
