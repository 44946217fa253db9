package httpstream_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
	"github.com/percore/percore/internal/testnet/frames"
)

// send returns a function that plays one request, with a body if parts are given.
func send(fields []string, parts ...string) func(p *frames.Peer) {
	return func(p *frames.Peer) {
		p.Headers(1, len(parts) == 0, fields...)
		for i, part := range parts {
			p.Data(1, part, i == len(parts)-1)
		}
	}
}

// sendBoth returns a function that plays a request, and a plain one behind it.
func sendBoth(fields []string) func(p *frames.Peer) {
	return func(p *frames.Peer) { p.Headers(1, true, fields...).Headers(3, true, get("GET", "/")...) }
}

// begin returns a function that plays the header of a request, and then f when the answer's has come.
func begin(fields []string, f func(p *frames.Peer)) func(p *frames.Peer) {
	return func(p *frames.Peer) {
		p.Headers(1, false, fields...).Flush()
		for !strings.HasPrefix(p.Next(), "headers 1") {
		}
		f(p)
	}
}

// see notes the request and its body, and answers.
func see(s *seen, w http.ResponseWriter, r *http.Request) {
	describe(s, r)
	readAll(s, r)
	_, _ = io.WriteString(w, "seen")
}

// answer returns a handler that answers, and notes something.
func answer(f func(w http.ResponseWriter)) func(s *seen, w http.ResponseWriter, r *http.Request) {
	return func(s *seen, w http.ResponseWriter, r *http.Request) {
		s.note("called")
		f(w)
	}
}

// tooMuch returns a handler that writes more than it has declared, maybe when the header is sent.
func tooMuch(length string, isSent bool) func(s *seen, w http.ResponseWriter, r *http.Request) {
	return func(s *seen, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", length)
		if isSent {
			w.(http.Flusher).Flush()
		}
		n, err := io.WriteString(w, "short")
		s.note("%d, %v", n, err)
	}
}

// withField returns a handler whose answer has a field.
func withField(key string, values ...string) func(s *seen, w http.ResponseWriter, r *http.Request) {
	return answer(func(w http.ResponseWriter) {
		w.Header()[key] = values
		_, _ = io.WriteString(w, "short")
	})
}

var long = strings.Repeat("0123456789", 2000)

// Each entry of scripts shows one behavior of the handler's side.
var scripts = []script{
	// The request.
	{name: "GET", handler: see, play: send(get("GET", "/a/b?c=d"))},
	{name: "fields", handler: see, play: send(get("GET", "/", "x-a", "1", "x-b", "2", "x-a", "3", "user-agent", "me", "accept", "*/*"))},
	{name: "cookies", handler: see, play: send(get("GET", "/", "cookie", "a=b", "cookie", "c=d", "cookie", "e"))},
	{name: "one cookie", handler: see, play: send(get("GET", "/", "cookie", "a=b; c=d"))},
	{name: "host without authority", handler: see, play: send([]string{":method", "GET", ":scheme", "http", ":path", "/", "host", "other.example"})},
	{name: "host besides authority", handler: see, play: send(get("GET", "/", "host", "other.example"))},
	{name: "escaped path", handler: see, play: send(get("GET", "/a%2fb%20c/%C3%A4?x=%20#y"))},
	{name: "path of two slashes", handler: see, play: send(get("GET", "//host/path"))},
	{name: "empty query", handler: see, play: send(get("GET", "/?"))},
	{name: "absolute path", handler: see, uncalled: httpstream.RootedPath, play: send(get("GET", "http://x.example/y"))},
	{name: "path without a slash", handler: see, uncalled: true, play: send(get("POST", "package.Service/Method"))},
	{name: "asterisk", handler: see, uncalled: true, play: send(get("OPTIONS", "*"), "abc")},
	{name: "asterisk for the handler", handler: see, configure: func(srv *http.Server) { srv.DisableGeneralOptionsHandler = true }, play: send(get("OPTIONS", "*"))},
	{name: "bad path", handler: see, streams: 2, unordered: true, play: sendBoth(get("GET", "/%zz"))},
	{name: "CONNECT", handler: see, play: send([]string{":method", "CONNECT", ":authority", "x.example:443"})},
	{name: "CONNECT with a path", handler: see, uncalled: true, play: send([]string{":method", "CONNECT", ":scheme", "http", ":authority", "x.example", ":path", "/"})},
	{name: "CONNECT with :protocol", handler: see, uncalled: !httpstream.ExtendedConnect, play: send(connect("/chat?a=b", "origin", "http://x.example", "sec-websocket-version", "13"), "abc")},
	{name: "other method", handler: see, play: send(get("BREW", "/pot"))},
	{name: "POST with length", handler: see, play: send(get("POST", "/", "content-length", "6"), "abc", "def")},
	{name: "POST without length", handler: see, play: send(get("POST", "/"), "abc", "def")},
	{name: "POST with length 0", handler: see, play: send(get("POST", "/", "content-length", "0"), "")},
	{name: "POST with a length that is no number", handler: see, play: send(get("POST", "/", "content-length", "x"), "")},
	{name: "POST with two lengths", handler: see, uncalled: httpstream.BadLengthResets, play: send(get("POST", "/", "content-length", "3", "content-length", "4"), "abc")},
	{name: "POST with the same length twice", handler: see, play: send(get("POST", "/", "content-length", "3", "content-length", "3"), "abc")},
	{name: "POST of nothing", handler: see, play: send(get("POST", "/"))},
	{name: "body too short", handler: see, play: send(get("POST", "/", "content-length", "10"), "abc")},
	{name: "trailers", handler: see, play: func(p *frames.Peer) {
		p.Headers(1, false, get("POST", "/", "trailer", "X-A, x-b, Content-Length", "te", "trailers")...).Data(1, "abc", false)
		p.Headers(1, true, "x-a", "1", "x-undeclared", "2")
	}},
	{name: "connection field", handler: see, streams: 2, unordered: true, malformed: true, play: sendBoth(get("GET", "/", "connection", "close"))},
	{name: "several connection fields", handler: see, streams: 2, unordered: true, malformed: true,
		play: sendBoth(get("GET", "/", "upgrade", "a", "proxy-connection", "b", "keep-alive", "1"))},
	{name: "te", handler: see, streams: 2, unordered: true, malformed: true, play: sendBoth(get("GET", "/", "te", "gzip"))},
	{name: "Expect", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		describe(s, r)
		w.Header().Set("X-A", "b")
		readAll(s, r)
		w.WriteHeader(204)
	}, play: send(get("POST", "/", "expect", "100-continue"), "abc")},
	{name: "Expect and a read behind the answer's begin", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		readAll(s, r)
		_, _ = io.WriteString(w, "b")
	}, play: send(get("POST", "/", "expect", "100-continue"), "abc")},
	{name: "Expect and a read behind an interim answer", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(103)
		readAll(s, r)
	}, play: send(get("POST", "/", "expect", "100-continue"), "abc")},
	{name: "Expect without a read", handler: answer(func(w http.ResponseWriter) { w.WriteHeader(417) }), streams: 1,
		play: send(get("POST", "/", "expect", "100-continue"), "abc")},

	// The answer.
	{name: "nothing", handler: answer(func(http.ResponseWriter) {})},
	{name: "short", handler: answer(func(w http.ResponseWriter) { _, _ = io.WriteString(w, "short") })},
	{name: "html", handler: answer(func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html></html>")) })},
	{name: "long", handler: answer(func(w http.ResponseWriter) { _, _ = io.WriteString(w, long) })},
	{name: "bytes, long", handler: answer(func(w http.ResponseWriter) { _, _ = w.Write([]byte(long)) })},
	{name: "4096 bytes", handler: answer(func(w http.ResponseWriter) { _, _ = io.WriteString(w, long[:4096]) })},
	{name: "4097 bytes", handler: answer(func(w http.ResponseWriter) { _, _ = io.WriteString(w, long[:4097]) })},
	{name: "declared length", handler: withField("Content-Length", "5")},
	{name: "length that is no number", handler: withField("Content-Length", "five")},
	{name: "more than declared", handler: tooMuch("3", true)},
	{name: "more than declared, at once", handler: tooMuch("3", false)},
	{name: "more than nothing", handler: tooMuch("0", true)},
	{name: "own type", handler: withField("Content-Type", "x/y")},
	{name: "no type", handler: withField("Content-Type")},
	{name: "coding", handler: withField("Content-Encoding", "gzip")},
	{name: "own date", handler: withField("Date", "today")},
	{name: "no date", handler: withField("Date")},
	{name: "fields of the answer", handler: answer(func(w http.ResponseWriter) {
		h := w.Header()
		h["X-B"] = []string{"1", "2"}
		h.Set("X-A", "3")
		h["x-lower"] = []string{"4"}
		h["Bad Name"] = []string{"5"}
		h["X-Bad-Value"] = []string{"a\r\nb"}
		h["Ä"] = []string{"6"}
		h.Set("Upgrade", "x")
		h.Set("Keep-Alive", "y")
		h.Set("Transfer-Encoding", "chunked")
		h.Set("Set-Cookie", "a=b")
	})},
	{name: "changes behind WriteHeader", handler: answer(func(w http.ResponseWriter) {
		w.Header().Set("X-A", "1")
		w.WriteHeader(201)
		w.Header().Set("X-A", "2")
		w.Header().Set("X-B", "3")
		w.WriteHeader(404)
		_, _ = io.WriteString(w, "short")
	})},
	{name: "HEAD", handler: answer(func(w http.ResponseWriter) { _, _ = io.WriteString(w, "short") }), play: send(get("HEAD", "/"))},
	{name: "HEAD of much", handler: answer(func(w http.ResponseWriter) { _, _ = io.WriteString(w, long) }), play: send(get("HEAD", "/"))},
	{name: "HEAD of nothing", handler: answer(func(http.ResponseWriter) {}), play: send(get("HEAD", "/"))},
	{name: "204", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		n, err := io.WriteString(w, "short")
		s.note("%d, %v", n, err)
	}},
	{name: "304", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "x/y")
		w.WriteHeader(304)
		n, err := io.WriteString(w, "short")
		s.note("%d, %v", n, err)
	}},
	{name: "interim answers", handler: answer(func(w http.ResponseWriter) {
		w.Header().Set("Link", "</a>")
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(103)
		w.WriteHeader(102)
		_, _ = io.WriteString(w, "short")
	})},
	{name: "Flush", handler: answer(func(w http.ResponseWriter) {
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "short")
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "er")
	})},
	{name: "FlushError", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "short")
		s.note("%v", http.NewResponseController(w).Flush())
	}},
	{name: "declared trailers", logs: true, handler: answer(func(w http.ResponseWriter) {
		w.Header().Set("Trailer", "X-B, X-A, Content-Type")
		w.Header().Add("Trailer", "X-None")
		_, _ = io.WriteString(w, "short")
		w.Header().Set("X-A", "1")
		w.Header().Set("X-B", "2")
		w.Header().Set("X-C", "3")
	})},
	{name: "undeclared trailers", logs: true, handler: answer(func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "short")
		w.Header().Set(http.TrailerPrefix+"X-A", "1")
		w.Header().Set(http.TrailerPrefix+"Host", "2")
	})},
	{name: "both kinds of trailers", handler: answer(func(w http.ResponseWriter) {
		w.Header().Set("Trailer", "X-C, X-B")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-A", "1")
		w.Header().Set("X-B", "2")
		w.Header().Set("X-C", "3")
	})},
	{name: "trailers without a body", handler: answer(func(w http.ResponseWriter) {
		w.Header().Set(http.TrailerPrefix+"X-A", "1")
	})},
	{name: "trailers behind a flush", handler: answer(func(w http.ResponseWriter) {
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-A", "1")
	})},
	{name: "Error", handler: answer(func(w http.ResponseWriter) { http.Error(w, "wrong", 500) })},
	{name: "NotFound", handler: answer(func(w http.ResponseWriter) { http.NotFound(w, nil) })},
	{name: "Redirect", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		s.note("called")
		http.Redirect(w, r, "/there", http.StatusFound)
	}},
	{name: "ServeContent", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		s.note("called")
		http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader(long))
	}, play: send(get("GET", "/", "range", "bytes=5-10"))},
	{name: "Connection: close", handler: answer(func(w http.ResponseWriter) { w.Header().Set("Connection", "close") }), leaves: true, closes: true},
	{name: "panic", logs: true, handler: answer(func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "short")
		panic("of the handler")
	})},
	{name: "panic behind the header", logs: true, handler: answer(func(w http.ResponseWriter) {
		w.(http.Flusher).Flush()
		panic("of the handler")
	})},
	{name: "ErrAbortHandler", handler: answer(func(http.ResponseWriter) { panic(http.ErrAbortHandler) })},
	{name: "bad status", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		defer func() { s.note("%v", recover()) }()
		w.WriteHeader(99)
	}},

	// Both.
	{name: "early answer", handler: answer(func(w http.ResponseWriter) { _, _ = io.WriteString(w, "short") }), streams: 2,
		play: func(p *frames.Peer) { p.Headers(1, false, get("POST", "/")...).Data(1, "abc", false) }},
	{name: "body closed", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		r.Body.Close()
		r.Body.Close()
		n, err := r.Body.Read(make([]byte, 10))
		s.note("%d, %v", n, err)
	}, play: send(get("POST", "/"), "abc")},
	{name: "body at its end", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		readAll(s, r)
		n, err := r.Body.Read(make([]byte, 10))
		s.note("%d, %v", n, err)
		r.Body.Close()
		n, err = r.Body.Read(make([]byte, 10))
		s.note("%d, %v", n, err)
	}, play: send(get("POST", "/"), "abc")},
	{name: "MaxBytesReader", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4))
		s.note("%q, %v", b, err)
		w.WriteHeader(413)
	}, play: send(get("POST", "/"), "abcdef")},
	{name: "form", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		s.note("%q %q", r.FormValue("a"), r.PostFormValue("b"))
	}, play: send(get("POST", "/?a=1", "content-type", "application/x-www-form-urlencoded"), "b=2")},
	{name: "reset while reading", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			return
		}
		w.(http.Flusher).Flush()
		_, err := io.ReadAll(r.Body)
		<-r.Context().Done()
		_, writeErr := w.Write(make([]byte, 5000))
		s.note("%v, %v, %v", err, r.Context().Err(), writeErr)
	}, play: begin(get("POST", "/"), func(p *frames.Peer) { p.Reset(1, 99).Headers(3, true, get("GET", "/")...) })},
	{name: "body too long", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		readAll(s, r)
	}, play: begin(get("POST", "/", "content-length", "2"), func(p *frames.Peer) { p.Data(1, "abc", false) })},
	{name: "trailers that are neither declared nor allowed", handler: see, play: func(p *frames.Peer) {
		p.Headers(1, false, get("POST", "/")...).Data(1, "abc", false).Headers(1, true, "expect", "x")
	}},
	{name: "HEAD that is flushed", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		n, err := w.Write(make([]byte, 5000))
		s.note("%v, %d, %v", r.Context().Err(), n, err)
	}, play: send(get("HEAD", "/"))},
	{name: "HEAD of a body in parts", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		for range 3 {
			n, err := io.WriteString(w, long[:3000])
			s.note("%d, %v", n, err)
		}
	}, play: send(get("HEAD", "/"))},
	{name: "writes behind a reset", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		for _, size := range []int{100, 4096, 10000, 1} {
			n, err := io.WriteString(w, long[:size])
			m, bytesErr := w.Write([]byte(long[:size]))
			s.note("%d, %v, %d, %v", n, err, m, bytesErr)
		}
		rc := http.NewResponseController(w)
		s.note("%v, %v, %v", rc.Flush(), rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Now().Add(time.Hour)))
	}, play: func(p *frames.Peer) {
		p.Headers(1, true, get("GET", "/")...).Flush()
		for !strings.HasPrefix(p.Next(), "headers 1") {
		}
		p.Reset(1, h2.Cancel)
	}, streams: -1},
	{name: "writes behind a deadline", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		s.note("%v", rc.SetWriteDeadline(time.Now().Add(-time.Hour)))
		<-r.Context().Done()
		_, readErr := r.Body.Read(make([]byte, 1))
		n, err := w.Write(make([]byte, 5000))
		s.note("%v, %d, %v, %v", readErr, n, err, rc.Flush())
	}, play: func(p *frames.Peer) { p.Headers(1, false, get("POST", "/")...) }},
	{name: "ResponseController", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, _, err := rc.Hijack()
		s.note("%v", err)
		s.note("%v %v %v", rc.EnableFullDuplex(), rc.SetReadDeadline(time.Now().Add(time.Hour)), rc.SetWriteDeadline(time.Now().Add(time.Hour)))
		s.note("%v", rc.SetReadDeadline(time.Now().Add(-time.Hour)))
		_, err = io.ReadAll(r.Body)
		s.note("%v", err)
	}, play: func(p *frames.Peer) { p.Headers(1, false, get("POST", "/")...) }, streams: 2},
	{name: "write deadline", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		s.note("%v", http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Hour)))
		<-r.Context().Done()
		s.note("%v", context.Cause(r.Context()))
	}},
	{name: "ReadTimeout", timed: func(srv *http.Server, d time.Duration) { srv.ReadTimeout = d }, handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		s.note("%v", err)
	}, play: func(p *frames.Peer) { p.Headers(1, false, get("POST", "/")...) }, streams: 2},
	{name: "WriteTimeout", timed: func(srv *http.Server, d time.Duration) { srv.WriteTimeout = d }, handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		s.note("ended")
	}},
	{name: "interfaces", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		_, a := w.(http.Flusher)
		_, b := w.(http.Hijacker)
		_, c := w.(http.CloseNotifier) //lint:ignore SA1019 handlers use it
		_, d := w.(io.StringWriter)
		_, e := w.(io.ReaderFrom)
		_, f := w.(http.Pusher)
		_, g := w.(interface{ FlushError() error })
		s.note("%t %t %t %t %t %t %t", a, b, c, d, e, f, g)
	}},
	{name: "CloseNotify", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		notifier := w.(http.CloseNotifier) //lint:ignore SA1019 handlers use it
		gone := notifier.CloseNotify()
		w.(http.Flusher).Flush()
		s.note("%t %t", notifier.CloseNotify() == gone, <-gone)
	}, play: begin(get("POST", "/"), func(p *frames.Peer) { p.Reset(1, h2.Cancel) }), streams: -1},
	{name: "context ends with the handler", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { s.note("ended: %v", r.Context().Err()) })
	}},
}

// extendedScripts are scripts for servers that allow extended CONNECT.
var extendedScripts = []script{
	{name: "CONNECT without a body", handler: see, play: send(connect("/chat"))},
	{name: "CONNECT with another protocol", handler: see, play: send(append([]string{":protocol", "connect-ip"}, connect("/")[2:]...), "abc")},
	{name: "CONNECT over another scheme", handler: see, play: send([]string{":protocol", "a", ":method", "CONNECT", ":scheme", "ftp", ":authority", "x.example", ":path", "/"}, "abc")},
	{name: "CONNECT with a bad path", handler: see, uncalled: true, play: send(connect("/%zz"), "abc")},
	{name: "CONNECT with a path that has no slash", handler: see, uncalled: true, play: send(connect("chat"), "abc")},
	{name: "CONNECT with :protocol and no path", handler: see, uncalled: true, play: send(connect("/")[:8], "abc")},
	{name: "CONNECT with :protocol and user information", handler: see, uncalled: true,
		play: send([]string{":protocol", "websocket", ":method", "CONNECT", ":scheme", "http", ":authority", "a@x.example", ":path", "/"}, "abc")},
	{name: "CONNECT, refused", streams: 2, handler: answer(func(w http.ResponseWriter) { http.Error(w, "no", http.StatusNotImplemented) }),
		play: func(p *frames.Peer) { p.Headers(1, false, connect("/chat")...) }},
	{name: "CONNECT, 101", streams: 2, handler: answer(func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) }),
		play: func(p *frames.Peer) { p.Headers(1, false, connect("/chat")...) }},
	{name: "CONNECT, both ways at once", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		s.note("%v %v", rc.EnableFullDuplex(), rc.Flush())
		b := make([]byte, 100)
		for err := error(nil); err == nil; {
			var n int
			n, err = r.Body.Read(b)
			_, writeErr := w.Write(b[:n])
			s.note("%q, %v, %v, %v", b[:n], err, writeErr, rc.Flush())
		}
		_, _ = io.WriteString(w, "bye") // only the client's side has ended
	}, play: func(p *frames.Peer) { p.Headers(1, false, connect("/chat")...) }, react: func(p *frames.Peer, f string) {
		switch {
		case strings.HasPrefix(f, "headers 1"):
			p.Data(1, "one", false).Flush()
		case f == `data 1 "one"`:
			p.Data(1, "two", false).Flush()
		case f == `data 1 "two"`:
			p.Data(1, "", true).Flush()
		}
	}},
	{name: "CONNECT, ended by the server", streams: 2, handler: answer(func(w http.ResponseWriter) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "bye")
	}), play: func(p *frames.Peer) { p.Headers(1, false, connect("/chat")...).Data(1, "abc", false) }},
	{name: "CONNECT, reset by the client", handler: func(s *seen, w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			return
		}
		_ = http.NewResponseController(w).Flush()
		b, err := io.ReadAll(r.Body)
		<-r.Context().Done()
		_, writeErr := w.Write(make([]byte, 5000))
		s.note("%q, %v, %v, %v", b, err, r.Context().Err(), writeErr)
	}, play: func(p *frames.Peer) { p.Headers(1, false, connect("/chat")...) }, react: func(p *frames.Peer, f string) {
		if strings.HasPrefix(f, "headers 1") {
			p.Reset(1, h2.Cancel).Headers(3, true, get("GET", "/")...).Flush()
		}
	}},
	{name: "CONNECT, aborted by the handler", handler: answer(func(w http.ResponseWriter) {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}), play: func(p *frames.Peer) { p.Headers(1, false, connect("/chat")...) }},
}

// connect returns the pseudo-header fields of extended CONNECT, followed by more.
func connect(path string, more ...string) []string {
	return append([]string{":protocol", "websocket", ":method", "CONNECT", ":scheme", "http", ":authority", "x.example", ":path", path}, more...)
}

// twin has the same fields as a StreamError, in another package.
type twin struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (twin) Error() string { return "" }

// TestStreamError: programs can find a reset with a type that has the same fields in another package.
func TestStreamError(t *testing.T) {
	var got twin
	err := httpstream.StreamError(1, h2.Cancel)
	if !errors.As(err, &got) || got != (twin{StreamID: 1, Code: 8}) {
		t.Errorf("got %+v", got)
	}
}
