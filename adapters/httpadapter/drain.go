package httpadapter

import (
	"context"
	"net/http"
	"time"
)

// Drain makes clients open their next connections elsewhere, without losing a request. Call it before
// Shutdown, which closes connections that wait: a client that sends a request just then loses it, and
// has to decide whether it may send it again. Once Drain is called,
//
//   - each answer over HTTP/1 says "Connection: close", and its connection ends after it. A waiting
//     connection, parked or not, stays open until its client has sent one more request, until
//     IdleTimeout, or until Shutdown.
//   - HTTP/2 connections get the first of two GOAWAYs at once. Streams that the client opens before it
//     knows are served, open streams go on, and the connection ends with the last stream. HTTP/2
//     connections that net/http serves get their GOAWAY with the next answer.
//   - the same holds for connections that are accepted later. Listeners stay open: only the answers
//     tell clients that the Server is about to end.
//
// Drain returns nil when no connection is left, or ctx's error when ctx is done. Waiting connections
// can take long to end, so give ctx a timeout: a second is longer than most busy clients wait between
// two requests. If ctx is already done, Drain returns at once, with the same effect. Hijacked
// connections are left alone, and Drain doesn't wait for them.
//
// There is no way back: the Server drains until it is closed. Drain may be called at any time, more
// than once, from several goroutines, and together with other methods. After Shutdown or Close it
// returns when their connections have ended. A handler must not wait for it. It has no effect on
// connections that the http.Server's own Serve has accepted.
//
// If a handler runs when Drain is called, its answer also says "Connection: close" if its header was
// not sent yet. Otherwise the next answer on its connection does. Answers to requests with the header
// Upgrade never do, because they may be "101 Switching Protocols". Neither do answers that net/http
// gives without the handler ("OPTIONS *"), or whose handler sets Connection itself.
//
// Package net/http has nothing like it. SetKeepAlivesEnabled(false) has the same effect on answers, but
// closes connections that wait.
func (s *Server) Drain(ctx context.Context) error {
	if ctx == nil {
		return errNilContext("Drain")
	}
	s.drains.Call()
	s.draining.Store(true) // first: a connection that becomes HTTP/2 is in streams, and then looks
	s.mu.Lock()
	calls := s.callsLocked()
	s.mu.Unlock()
	for _, call := range calls {
		if call.streams != nil {
			call.streams.GoAway()
		}
	}
	for pause := drainPauseMin; s.left() > 0; pause = min(2*pause, drainPauseMax) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// RegisterOnDrain registers a function that is called once, on a goroutine of its own, when Drain,
// HandOver, Shutdown or the http.Server's Shutdown is called for the first time, or at once if one
// already was. It is for answers that wait: tell the clients of [Answer]s to come back elsewhere, and
// close them, or Drain, HandOver and Shutdown wait for them. If the handover then fails, the Server
// goes on serving, and the function is not called again. Only Shutdown calls the functions of
// RegisterOnShutdown.
func (s *Server) RegisterOnDrain(f func()) {
	if f == nil {
		panic("httpadapter: RegisterOnDrain was called with a nil function")
	}
	s.drains.Add(f)
}

// After these pauses Drain checks whether connections are left. They are shorter than those of
// net/http's Shutdown, since a Drain usually takes a second at most.
const (
	drainPauseMin = time.Millisecond
	drainPauseMax = 50 * time.Millisecond
)

// left returns how many connections the Server has, without hijacked ones.
func (s *Server) left() int64 {
	n := s.foreign.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for call := range s.mu.calls {
		// Keep this order: a loop that ends is taken from loops before refs, so the difference may be
		// too large for a moment, and never too small.
		refs := call.refs.Load()
		n += refs - call.loops.Load()
	}
	return n
}

// closingHandler is the http.Server's Handler, before the user's. It makes the last answer of a
// connection say so.
type closingHandler struct{ server *Server }

func (h closingHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := h.server
	// A handler that passes on the answer of another server, as httputil.ReverseProxy does, would send
	// "Connection: close" beside "Connection: Upgrade".
	if s.isLast(r) && r.Header["Upgrade"] == nil {
		w.Header().Set("Connection", "close")
	}
	handler := s.user.handler
	if handler == nil {
		handler = http.DefaultServeMux
	}
	if s.work != nil {
		s.work.serve(handler, w, r)
		return
	}
	handler.ServeHTTP(w, r)
}

// isLast reports whether a request is to be the last of its connection.
func (s *Server) isLast(r *http.Request) bool {
	if s.draining.Load() {
		return true
	}
	if s.maxAge == 0 && s.maxRequests == 0 {
		return false
	}
	a, ok := r.Context().Value(connAgeKey{}).(*connAge)
	return ok && a.isLast()
}
