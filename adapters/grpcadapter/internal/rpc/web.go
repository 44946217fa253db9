package rpc

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/h2"
)

// webStream carries a call over a request of net/http. Bytes that are sent with Hold wait for the end of
// the handler, as on a stream of package h2.
type webStream struct {
	// immutable
	call *call
	w    http.ResponseWriter
	r    *http.Request
	rc   *http.ResponseController

	// guarded by call.sending
	answered bool // the header was sent
	ended    bool // the answer is complete

	// guarded by mu
	mu     sync.Mutex
	reset  bool
	aborts bool // net/http is to reset the stream
	over   bool // ServeHTTP is about to return
}

// ServeHTTP serves a call as an http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 {
		http.Error(w, "gRPC requires HTTP/2", http.StatusHTTPVersionNotSupported)
		return
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	p := newPeer(textAddr(r.RemoteAddr), local, authInfo(r.TLS))
	cn := &conn{server: s, counts: s.counters.Next(), shared: true}
	cn.peer.Store(p)
	s.startServing()
	cn.ctx = peer.NewContext(webContext{r.Context(), s}, p)
	if sh := s.stats; sh != nil { // grpc-go reports a connection for each call here, too
		cn.ctx = sh.TagConn(cn.ctx, &stats.ConnTagInfo{RemoteAddr: p.Addr, LocalAddr: p.LocalAddr})
		sh.HandleConn(cn.ctx, &stats.ConnBegin{})
	}
	defer cn.closed()
	c := &call{conn: cn}
	c.web = &webStream{call: c, w: w, r: r, rc: http.NewResponseController(w)}
	if !c.read(headerOf(r)) {
		http.Error(w, "a field that HTTP/2 forbids", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.requests, c)
		s.mu.Unlock()
	}()
	c.Serve()
	c.web.finish()
}

// endRequests ends the calls of ServeHTTP.
func (s *Server) endRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.requests {
		c.Cancelled(&h2.ConnError{Code: h2.NoError})
		c.web.Reset(h2.Cancel)
	}
}

// webContext is the context of a request, with the values that the contexts of connections have.
type webContext struct {
	context.Context
	server *Server
}

// Value implements context.Context.
func (x webContext) Value(key any) any {
	if find := x.server.config.ConnValue; find != nil {
		if v := find(nil, key); v != nil {
			return v
		}
	}
	return x.Context.Value(key)
}

// textAddr is the address of a client as net/http has it.
type textAddr string

// Network implements [net.Addr].
func (a textAddr) Network() string { return "tcp" }

// String implements [net.Addr].
func (a textAddr) String() string { return string(a) }

// headerOf returns the header of a request as package h2 has it.
func headerOf(r *http.Request) *h2.Request {
	to := &h2.Request{Method: r.Method, Authority: r.Host, HasAuthority: true, Path: r.URL.Path, Fields: make([]h2.Field, 0, len(r.Header))}
	for key, values := range r.Header {
		for _, v := range values {
			to.Fields = append(to.Fields, h2.MakeField(strings.ToLower(key), v))
		}
	}
	return to
}

// ReadFull reads from the request's body. Only the end of the whole body gives the errors of
// [io.ReadFull].
func (s *webStream) ReadFull(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = s.r.Body.Read(p[n:])
		n += m
	}
	switch {
	case n == len(p):
		return n, nil
	case err != io.EOF:
		return n, gone(err)
	case n > 0:
		return n, io.ErrUnexpectedEOF
	}
	return 0, io.EOF
}

// Buffered returns 0: net/http doesn't say what has come.
func (s *webStream) Buffered() int { return 0 }

// past is a deadline that makes waiting calls return.
var past = time.Unix(1, 0)

// CloseRead makes a waiting ReadFull return.
func (s *webStream) CloseRead() { _ = s.rc.SetReadDeadline(past) }

// check returns an error if nothing may be sent any more, or if a field is not valid.
func (s *webStream) check(fields ...[]h2.Field) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.reset {
		return h2.ErrEnded
	}
	for _, list := range fields {
		for i := range list {
			if f := &list[i]; !f.Valid() {
				return fmt.Errorf("grpcadapter: the field %q must not be sent: its name or value is not valid", f.Name)
			}
		}
	}
	return nil
}

// gone returns the error of a stream that net/http has lost, or nil.
func gone(err error) error {
	if err != nil {
		return &h2.StreamError{Code: h2.Cancel, Remote: true, Err: err}
	}
	return nil
}

// Send sends a part of the answer.
func (s *webStream) Send(m h2.Message) error {
	if err := s.check(m.Fields, m.Trailers); err != nil {
		return err
	}
	h := s.w.Header()
	if m.Status != 0 && !s.answered {
		for i := range m.Fields {
			h.Add(m.Fields[i].Name.Key(), m.Fields[i].Value)
		}
		h["Date"], h["Content-Length"] = nil, nil // no field but the call's, as with the other carrier
		s.answered = true
		s.w.WriteHeader(m.Status)
	}
	if len(m.Body) > 0 {
		if _, err := s.w.Write(m.Body); err != nil {
			return gone(err)
		}
	}
	for i := range m.Trailers {
		h.Add(http.TrailerPrefix+m.Trailers[i].Name.Key(), m.Trailers[i].Value)
	}
	s.ended = s.ended || m.End || m.Trailers != nil
	if m.Hold || s.ended { // trailers go when ServeHTTP returns
		return nil
	}
	return gone(s.rc.Flush())
}

// Reset ends the call, and makes waiting calls return. The answer is ended by finish, which runs on the
// request's own goroutine.
func (s *webStream) Reset(code h2.ErrCode) {
	s.call.Cancelled(&h2.StreamError{Code: code}) // unless it has ended in another way
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aborts = s.aborts || code != h2.Cancel
	if s.over || s.reset {
		return
	}
	s.reset = true
	s.interruptLocked(s.call.isSending())
}

// interrupt makes waiting calls return. sends reports that one of them is sending.
func (s *webStream) interrupt(sends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over && !s.reset {
		s.interruptLocked(sends)
	}
}

func (s *webStream) interruptLocked(sends bool) {
	_ = s.rc.SetReadDeadline(past)
	if sends { // otherwise nothing but a status is sent from now on, because the call is done
		_ = s.rc.SetWriteDeadline(past) // net/http resets the stream then
	}
}

// isSending reports whether a goroutine is sending.
func (c *call) isSending() bool {
	if c.sending.TryLock() {
		c.sending.Unlock()
		return false
	}
	return true
}

// finish ends the answer. A call that has ended without a status, because its context was cancelled,
// gets one: net/http could only reset its stream, with a code that says something else.
func (s *webStream) finish() {
	s.mu.Lock()
	s.over = true
	aborts := s.aborts
	s.mu.Unlock()
	if !s.call.sending.TryLock() { // another goroutine is sending
		_ = s.rc.SetWriteDeadline(past)
		s.call.sending.Lock()
	}
	defer s.call.sending.Unlock()
	s.call.mu.Lock()
	code, closing := s.call.code, s.call.closing
	s.call.mu.Unlock()
	if aborts || closing && !s.ended {
		panic(http.ErrAbortHandler)
	}
	if s.ended {
		return
	}
	h, prefix := s.w.Header(), ""
	if s.answered {
		prefix = http.TrailerPrefix
	} else {
		h.Set("Content-Type", "application/grpc")
	}
	fields, _ := statusFields(nil, status.New(code, context.Canceled.Error()))
	for i := range fields {
		h.Set(prefix+fields[i].Name.Key(), fields[i].Value)
	}
}

func (s *webStream) afterFunc(d time.Duration, f func()) h2.Timer { return time.AfterFunc(d, f) }
func (s *webStream) headerBytesMax() int                          { return 0 }
