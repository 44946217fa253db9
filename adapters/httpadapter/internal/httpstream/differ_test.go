package httpstream_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// A seen records what handlers have seen, in order.
type seen struct {
	mu    sync.Mutex
	lines []string
}

func (s *seen) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *seen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n\t")
}

// A side is a server with a handler, and a client for it.
type side struct {
	seen    seen
	running atomic.Int32 // running handlers
	log     testnet.Log
	peer    *frames.Peer
}

// count counts the running handlers.
func (s *side) count(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Add(-1)
		h(w, r)
	}
}

// A way is a server under test, and the listener that it is served on.
type way struct {
	name   string
	listen testnet.ListenFunc
	wrap   func(*http.Server) testnet.WebServer
}

// ways are net/http's server on package net, and the one under test.
var ways = [2]way{
	{"net/http", net.Listen, func(srv *http.Server) testnet.WebServer { return srv }},
	{"this server", percore.Listen, func(srv *http.Server) testnet.WebServer { return httpadapter.Wrap(srv) }},
}

// servesHTTP2 reports whether this server serves HTTP/2 here. Off the engine net/http does.
func servesHTTP2(t *testing.T) bool {
	l, ok := testnet.Listen(t, percore.Listen, testnet.TCP4).(*percore.Listener)
	return ok && l.Stats().Sockets > 0
}

// serve serves srv in clear text, HTTP/2 only, until the test ends.
func (w way) serve(t testing.TB, srv *http.Server) net.Listener {
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetUnencryptedHTTP2(true)
	l := testnet.Listen(t, w.listen, testnet.TCP4)
	server := w.wrap(srv)
	done := make(chan bool)
	go func() { _ = server.Serve(l); close(done) }()
	t.Cleanup(func() { server.Close(); <-done })
	return l
}

// start starts a server with a handler, and connects a client.
func (w way) start(t *testing.T, configure func(*http.Server), handler func(*seen) http.HandlerFunc) *side {
	s := new(side)
	srv := &http.Server{Handler: s.count(handler(&s.seen)), ErrorLog: log.New(&s.log, "", 0)}
	configure(srv)
	s.dial(t, w.serve(t, srv))
	return s
}

func (s *side) dial(t *testing.T, l net.Listener) {
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	s.peer = frames.NewPeer(t, c)
}

// describe notes everything that a handler can see of a request.
func describe(s *seen, r *http.Request) {
	s.note("%s %s %s %d.%d host %q uri %q", r.Method, r.URL, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Host, r.RequestURI)
	s.note("url %#v", *r.URL)
	keys := make([]string, 0, len(r.Header))
	for k, v := range r.Header {
		keys = append(keys, fmt.Sprintf("%s: %q", k, v))
	}
	slices.Sort(keys)
	s.note("header %s", strings.Join(keys, ", "))
	s.note("length %d, no body %t, trailer %v, tls %t, close %t, te %v", r.ContentLength, r.Body == http.NoBody, r.Trailer, r.TLS != nil, r.Close, r.TransferEncoding)
	s.note("remote %t, server %t", strings.HasPrefix(r.RemoteAddr, "127.0.0.1:"), r.Context().Err() == nil)
}

// readAll notes a body and how it ends.
func readAll(s *seen, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	s.note("body %d bytes %.40q, %v, trailer %v", len(b), b, err, r.Trailer)
}

// A script is a handler, what a client sends, and how many streams must end.
type script struct {
	name      string
	configure func(*http.Server)
	timed     func(*http.Server, time.Duration) // sets a timeout
	handler   func(s *seen, w http.ResponseWriter, r *http.Request)
	play      func(p *frames.Peer)           // nil: a plain GET
	react     func(p *frames.Peer, f string) // to each frame
	streams   int                            // how many the server must end: 0 stands for 1, -1 for none
	closes    bool                           // the connection ends, too
	unordered bool                           // the received frames may be in another order
	leaves    bool                           // the server sends GOAWAY: net/http sends one, this server two
	uncalled  bool                           // the handler is not called
	logs      bool                           // something is logged
	malformed bool                           // this server resets stream 1 behind its answer; net/http ends it
}

// get returns the pseudo-header fields of a request, followed by more.
func get(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "http", ":authority", "example.com", ":path", path}, more...)
}

// play plays a script, and returns what the client got.
func (s *side) play(sc *script) (got []string) {
	sc.play(s.peer)
	s.peer.Flush()
	for ended := 0; ended < sc.streams || sc.closes; {
		f := s.peer.Next()
		switch {
		case f == "end" || strings.HasPrefix(f, "error"):
			if !sc.closes {
				got = append(got, f)
			}
			return got
		case f == "settings", f == "settings ack", strings.HasPrefix(f, "window"):
			continue
		}
		got = append(got, withoutDate(f))
		if sc.react != nil {
			sc.react(s.peer, f)
		}
		if strings.HasSuffix(f, " end") || strings.HasPrefix(f, "reset") {
			ended++
		}
	}
	return merge(got)
}

// withoutDate removes the server's time from a header.
func withoutDate(f string) string {
	const name = " date="
	i := strings.LastIndex(f, name)
	if i < 0 {
		return f
	}
	rest := f[i+len(name):]
	if _, err := time.Parse(http.TimeFormat, rest[:min(len(rest), len(http.TimeFormat))]); err != nil {
		return f
	}
	return f[:i] + " date" + rest[len(http.TimeFormat):]
}

// merge joins consecutive DATA frames: it doesn't matter how a body is split.
func merge(lines []string) (to []string) {
	for _, l := range lines {
		if n := len(to); n > 0 && strings.HasPrefix(l, "data ") && strings.HasPrefix(to[n-1], "data ") {
			var id, last int
			var p, q string
			if _, err := fmt.Sscanf(l, "data %d %q", &id, &p); err == nil {
				if _, err := fmt.Sscanf(to[n-1], "data %d %q", &last, &q); err == nil && id == last {
					end := ""
					if strings.HasSuffix(l, " end") {
						end = " end"
					}
					to[n-1] = fmt.Sprintf("data %d %q%s", id, q+p, end)
					continue
				}
			}
		}
		to = append(to, l)
	}
	return to
}

// TestDiffer plays each script against net/http's server on package net and against this one. It
// compares what the handler saw, what the client got, and the log.
func TestDiffer(t *testing.T) {
	resets := servesHTTP2(t)
	all := scripts
	if httpstream.ExtendedConnect {
		all = append(all, extendedScripts...)
	}
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			if sc.configure == nil {
				sc.configure = func(*http.Server) {}
			}
			if sc.streams == 0 {
				sc.streams = 1
			}
			if sc.play == nil {
				sc.play = send(get("GET", "/"))
			}
			handler := func(s *seen) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) { sc.handler(s, w, r) }
			}
			var frames, notes, logs [2]string
			for i, way := range ways {
				var s *side
				var got []string
				if sc.timed == nil {
					s = way.start(t, sc.configure, handler)
					got = s.play(&sc)
				}
				for d := 20 * time.Millisecond; sc.timed != nil; d *= 2 {
					// net/http uses the same timeout for the beginning of a connection.
					s = way.start(t, func(srv *http.Server) { sc.timed(srv, d) }, handler)
					if got = s.play(&sc); s.seen.text() != "" || s.running.Load() > 0 {
						break
					}
				}
				if sc.leaves || sc.timed != nil { // net/http has a timeout more, for idle connections
					got = slices.DeleteFunc(got, func(f string) bool { return strings.HasPrefix(f, "goaway") })
				}
				if sc.malformed && resets && i == 0 {
					got = resetBehindAnswer(got)
				}
				if sc.unordered {
					slices.Sort(got)
				}
				frames[i] = strings.Join(got, "\n\t")
				testnet.Eventually(t, "the handlers' notes", func() bool { return (s.seen.text() != "" || sc.uncalled) && s.running.Load() == 0 })
				notes[i] = s.seen.text()
				if sc.logs {
					testnet.Eventually(t, "a line of the log", func() bool { return s.log.Has("\n") })
				}
				logs[i], _, _ = strings.Cut(s.log.String(), "goroutine ")
				logs[i] = withoutPort(logs[i])
			}
			if frames[0] != frames[1] {
				t.Errorf("net/http sent\n\t%s\nthis server\n\t%s", frames[0], frames[1])
			}
			if notes[0] != notes[1] {
				t.Errorf("on net/http the handler saw\n\t%s\nhere\n\t%s", notes[0], notes[1])
			}
			if logs[0] != logs[1] {
				t.Errorf("net/http logged %q, this server %q", logs[0], logs[1])
			}
		})
	}
}

// TestExtendedConnect plays the scripts about CONNECT in another process, in which GODEBUG allows
// extended CONNECT.
func TestExtendedConnect(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^(TestDiffer|TestConnectSetting)$/CONNECT")
	cmd.Env = append(os.Environ(), "GODEBUG="+os.Getenv("GODEBUG")+",http2xconnect=1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"--- PASS: TestDiffer/CONNECT,_both_ways_at_once ", "--- PASS: TestConnectSetting/CONNECT=true "} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("got %v, want %q in\n%s", err, want, out)
		}
	}
}

// TestConnectSetting: both servers tell clients whether they may use extended CONNECT.
func TestConnectSetting(t *testing.T) {
	none := func(*http.Server) {}
	handler := func(*seen) http.HandlerFunc { return func(http.ResponseWriter, *http.Request) {} }
	t.Run(fmt.Sprintf("CONNECT=%t", httpstream.ExtendedConnect), func(t *testing.T) {
		for _, s := range []*side{ways[0].start(t, none, handler), ways[1].start(t, none, handler)} {
			var h [9]byte
			if _, err := io.ReadFull(s.peer.Flush().Conn, h[:]); err != nil || h[3] != frames.Settings {
				t.Fatalf("got the frame %x, %v, want SETTINGS", h, err)
			}
			b := make([]byte, h[2])
			if _, err := io.ReadFull(s.peer.Conn, b); err != nil {
				t.Fatal(err)
			}
			const enableConnect = "\x00\x08\x00\x00\x00\x01"
			got := false
			for setting := range slices.Chunk(b, len(enableConnect)) {
				got = got || string(setting) == enableConnect
			}
			if got != httpstream.ExtendedConnect {
				t.Errorf("got the settings %x, want SETTINGS_ENABLE_CONNECT_PROTOCOL: %t", b, httpstream.ExtendedConnect)
			}
		}
	})
}

// resetBehindAnswer returns the frames of a server that resets stream 1 where this one ended it.
func resetBehindAnswer(got []string) (to []string) {
	for _, f := range got {
		answer, ends := strings.CutSuffix(f, " end")
		if ends = ends && strings.HasPrefix(f, "data 1 "); ends {
			to = append(to, answer, fmt.Sprintf("reset 1 %v", h2.ProtocolError))
		} else {
			to = append(to, f)
		}
	}
	return to
}

// withoutPort removes the client's port from a line of the log.
func withoutPort(s string) string {
	const addr = "127.0.0.1:"
	if i := strings.Index(s, addr); i >= 0 {
		rest := s[i+len(addr):]
		return s[:i+len(addr)] + strings.TrimLeft(rest, "0123456789")
	}
	return s
}
