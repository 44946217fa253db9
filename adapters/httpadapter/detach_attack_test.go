package httpadapter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/testnet"
)

// detachServers starts a server with a handler, plain and over TLS.
func detachServers(t *testing.T, h http.HandlerFunc, do func(f *fixture)) {
	needParking(t)
	t.Run("plain", func(t *testing.T) { do(startOurs(t, h, nil)) })
	t.Run("TLS", func(t *testing.T) {
		f, config := startTLS(t, h, nil)
		f.client = config
		do(f)
	})
}

// awaitDetached waits until n answers are detached.
func (f *fixture) awaitDetached(n int) {
	f.Helper()
	testnet.Eventually(f, fmt.Sprintf("%d detached answers", n), func() bool { return f.server.Stats().Detached == n })
}

// TestDetachAbortBeforeBody: Abort ends the connection also while the rest of the request's body is
// waited for, which the client may never send.
func TestDetachAbortBeforeBody(t *testing.T) {
	ends := make(chan error, 1)
	h := func(w http.ResponseWriter, r *http.Request) {
		_ = Detach(w, r, func(s *Answer) {
			s.OnEnd(func(err error) { ends <- err })
			if r.URL.Path == "/now" {
				s.Abort(nil)
			} else {
				time.AfterFunc(time.Millisecond, func() { s.Abort(nil) }) // the handler has returned then, as a rule
			}
		})
	}
	detachServers(t, h, func(f *fixture) {
		for _, path := range []string{"/now", "/later"} {
			c := f.dial()
			c.send(post(path, 10) + "part")
			if err := testnet.Receive(f, "the end", ends); err != errAborted {
				f.Errorf("%s: OnEnd got %v", path, err)
			}
			if got, _ := io.ReadAll(c.br); len(got) > 0 {
				f.Errorf("%s: got %q", path, got)
			}
		}
		f.awaitDetached(0)
	})
}

// TestDetachBodyLate: an answer that ends the connection doesn't wait for the rest of the request's
// body, which may come while it goes on.
func TestDetachBodyLate(t *testing.T) {
	streams, ends := make(chan *Answer, 1), make(chan error, 1)
	h := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		if r.URL.Path == "/flushed" {
			_ = http.NewResponseController(w).Flush()
		}
		_ = Detach(w, r, func(s *Answer) {
			s.OnEnd(func(err error) { ends <- err })
			streams <- s
		})
	}
	detachServers(t, h, func(f *fixture) {
		inChunks := func(path string) string {
			return "POST " + path + " HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\na\r\n"
		}
		for _, beginning := range []string{post("/flushed", 10), post("/open", 10), inChunks("/flushed"), inChunks("/open")} {
			c := f.dial()
			c.send(beginning + "half")
			_, path, _ := strings.Cut(beginning, " ")
			path, _, _ = strings.Cut(path, " HTTP")
			s := testnet.Receive(f, "the Answer", streams)
			s.Flush()
			r, err := http.ReadResponse(c.br, nil)
			if err != nil {
				f.Fatal(err)
			}
			for _, more := range []string{"", "of it."} {
				c.send(more)
				io.WriteString(s, "event")
				s.Flush()
				if got, err := io.ReadAll(io.LimitReader(r.Body, 5)); string(got) != "event" || err != nil {
					f.Errorf("%s: got %q and %v", path, got, err)
				}
			}
			s.Close()
			if got, err := io.ReadAll(r.Body); len(got) > 0 || err != nil {
				f.Errorf("%s: got %q and %v behind the end", path, got, err)
			}
			if err := testnet.Receive(f, "the end", ends); err != nil {
				f.Errorf("%s: OnEnd got %v", path, err)
			}
		}
		f.awaitDetached(0)
	})
}

// TestDetachWriters: a hundred goroutines write to an answer, which another one closes. Each Write
// comes whole or not at all.
func TestDetachWriters(t *testing.T) {
	streams := make(chan *Answer, 1)
	h := func(w http.ResponseWriter, r *http.Request) {
		_ = Detach(w, r, func(s *Answer) {
			s.SetLimit(10<<20, false)
			streams <- s
		})
	}
	detachServers(t, h, func(f *fixture) {
		c := f.dial()
		for range 3 {
			c.send(request("/"))
			s := testnet.Receive(f, "an Answer", streams)
			var written atomic.Int64
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() {
					line := strings.Repeat(string(rune('!'+i%90)), 100+i) + "\n"
					for j := range 30 {
						if _, err := io.WriteString(s, line); err == nil {
							written.Add(int64(len(line)))
						}
						s.Flush()
						if i == 50 && j == 20 {
							s.Close()
						}
					}
				})
			}
			body := c.answer()
			wg.Wait()
			if int64(len(body)) != written.Load() {
				f.Fatalf("got %d bytes, want %d", len(body), written.Load())
			}
			for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
				if strings.Trim(line, line[:1]) != "" {
					f.Fatalf("got the line %q", line)
				}
			}
		}
	})
}

// TestDetachEnds: an Answer ends with its client, by a FIN or a reset, before anything is sent and in
// the middle, and with Server.Close. Close in the function of OnEnd does nothing.
func TestDetachEnds(t *testing.T) {
	streams := make(chan *Answer, 1)
	ends := make(chan error, 1)
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sent" {
			_ = http.NewResponseController(w).Flush()
		}
		_ = Detach(w, r, func(s *Answer) {
			s.OnEnd(func(err error) {
				s.Close()
				s.Abort(nil)
				ends <- err
				panic(http.ErrAbortHandler)
			})
			streams <- s
		})
	}
	detachServers(t, h, func(f *fixture) {
		for _, path := range []string{"/", "/sent"} {
			for name, end := range map[string]func(c *client){
				"fin":   func(c *client) { c.Close() },
				"half":  func(c *client) { c.closeWrite() },
				"reset": func(c *client) { _ = c.tcp().SetLinger(0); c.tcp().Close() },
				"close": func(*client) {
					for nc := range f.snapshot() { // of earlier ones, too
						if s := h1.ConnOf(nc).Sight(); isIn(s, "serving") || isIn(s, "notified") {
							nc.Close()
						}
					}
				},
			} {
				c := f.dial()
				c.send(request(path))
				s := testnet.Receive(f, "an Answer", streams)
				f.awaitDetached(1)
				end(c)
				if err := testnet.Receive(f, "the end by "+name, ends); err == nil {
					f.Errorf("%s: OnEnd got nil", name)
				}
				if err := s.Context().Err(); err == nil {
					f.Errorf("%s: the context is not cancelled", name)
				}
				c.Close()
				f.awaitDetached(0)
			}
		}
		testnet.Eventually(f, "all connections being closed", func() bool { return f.server.Stats().Conns == 0 })
	})
}

// TestDetachShutdown: Shutdown waits for Streams, which a function of RegisterOnDrain may close. Their
// answers are complete.
func TestDetachShutdown(t *testing.T) {
	streams := make(chan *Answer, 1)
	h := func(w http.ResponseWriter, r *http.Request) {
		_ = Detach(w, r, func(s *Answer) {
			io.WriteString(s, "begin ")
			s.Flush()
			streams <- s
		})
	}
	shut := map[string]func(f *fixture, ctx context.Context) error{
		"Shutdown": func(f *fixture, ctx context.Context) error { return f.server.Shutdown(ctx) },
		"Drain":    func(f *fixture, ctx context.Context) error { return f.server.Drain(ctx) },
	}
	for name, end := range shut {
		detachServers(t, h, func(f *fixture) {
			c := f.dial()
			c.send(request("/"))
			s := testnet.Receive(f, "an Answer", streams)
			f.awaitDetached(1)
			told := make(chan bool, 2)
			f.server.RegisterOnDrain(func() { told <- true })
			done, cancel := context.WithCancel(f.Context())
			cancel()
			if err := end(f, done); err != context.Canceled {
				f.Errorf("%s returned %v while an Answer waits", name, err)
			}
			testnet.Receive(f, "the call of RegisterOnDrain's function", told)
			ended := make(chan error, 1)
			go func() { ended <- end(f, context.Background()) }()
			io.WriteString(s, "end")
			s.Close()
			if got := c.answer(); got != "begin end" {
				f.Errorf("got %q", got)
			}
			if name == "Drain" {
				c.Close() // else one more request is served
			}
			if err := testnet.Receive(f, name, ended); err != nil {
				f.Errorf("%s returned %v", name, err)
			}
			if name == "Shutdown" {
				c.awaitEOF()
			}
			f.server.RegisterOnDrain(func() { told <- true })
			testnet.Receive(f, "the call of a function that is registered later", told)
		})
	}
}

// startDetachedH2C starts a server of HTTP/2 in clear, and returns a client for it.
func startDetachedH2C(t *testing.T, h http.HandlerFunc) (f *fixture, url string, client *http.Client) {
	needParking(t)
	protocols := clearHTTP2(false)
	f = start(t, h, func(f *fixture) { f.srv.Protocols = protocols })
	url, client = clientOf(t, f, nil, protocols)
	return f, url, client
}

// TestDetachStreams: many streams of one connection are detached at once, written to by several
// goroutines each, ended by either side, and none has a byte of another. Bodies of requests are dropped
// when the handler returns.
func TestDetachStreams(t *testing.T) {
	f, url, client := startDetachedH2C(t, func(w http.ResponseWriter, r *http.Request) {
		_ = Detach(w, r, func(s *Answer) {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 20 {
						io.WriteString(s, r.URL.RawQuery+"\n")
						s.Flush()
					}
				})
			}
			go func() {
				wg.Wait()
				if r.URL.Path == "/abort" {
					s.Abort(nil)
				} else {
					s.Close()
				}
			}()
		})
	})
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			path := []string{"/close", "/abort", "/leave"}[i%3]
			line := fmt.Sprint("line", i)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var body io.Reader
			if i%2 == 0 {
				body = strings.NewReader(strings.Repeat("b", 100_000))
			}
			r, err := http.NewRequestWithContext(ctx, "POST", url+path+"?"+line, body)
			if err != nil {
				t.Error(err)
				return
			}
			a, err := client.Do(r)
			if err != nil {
				if path == "/close" {
					t.Error(err)
				}
				return
			}
			defer a.Body.Close()
			if path == "/leave" {
				return
			}
			got, err := io.ReadAll(a.Body)
			if want := strings.Repeat(line+"\n", 80); path == "/close" && (string(got) != want || err != nil) || !strings.HasPrefix(want, string(got)) {
				t.Errorf("got %d bytes of %d and %v: %.100q", len(got), len(want), err, got)
			}
		})
	}
	wg.Wait()
	f.awaitDetached(0)
	testnet.Eventually(t, "no open stream", func() bool { return f.server.HTTP2Stats().Streams == 0 })
}

// TestDetachStreamsShutdown: Shutdown waits for the Streams of HTTP/2, and Close ends them.
func TestDetachStreamsShutdown(t *testing.T) {
	for _, closes := range []bool{false, true} {
		streams, ends := make(chan *Answer, 1), make(chan error, 1)
		f, url, client := startDetachedH2C(t, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_ = Detach(w, r, func(s *Answer) {
				s.OnEnd(func(err error) { ends <- err })
				streams <- s
			})
		})
		a := get(t, client, url)
		s := testnet.Receive(t, "an Answer", streams)
		f.awaitDetached(1)
		if closes {
			f.server.Close()
			if err := testnet.Receive(t, "the end", ends); err == nil {
				t.Error("OnEnd got nil")
			}
			f.awaitDetached(0)
			continue
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.server.Shutdown(done); err != context.Canceled {
			t.Errorf("Shutdown returned %v while an Answer waits", err)
		}
		io.WriteString(s, "end")
		s.Close()
		if got, err := io.ReadAll(a.Body); string(got) != "end" || err != nil {
			t.Errorf("got %q and %v", got, err)
		}
		f.shutdown()
		if err := testnet.Receive(t, "the end", ends); err != nil {
			t.Errorf("OnEnd got %v", err)
		}
	}
}
