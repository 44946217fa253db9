package httpadapter

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/testnet"
)

// detachedPrograms are the three programs that Detach was designed with. Each runs in the same way
// wherever its connection is served.
type detachedPrograms struct {
	t *testing.T

	mu      sync.Mutex
	streams map[string]*Answer
	ends    map[string]chan error
}

// begin registers an Answer under the request's query.
func (p *detachedPrograms) begin(r *http.Request) func(*Answer) {
	return func(s *Answer) {
		p.mu.Lock()
		defer p.mu.Unlock()
		ended := make(chan error, 1)
		s.OnEnd(func(err error) { ended <- err })
		p.streams[r.URL.RawQuery], p.ends[r.URL.RawQuery] = s, ended
	}
}

// stream returns the Answer of a query, once it is there.
func (p *detachedPrograms) stream(query string) (s *Answer) {
	p.t.Helper()
	testnet.Eventually(p.t, "the Answer "+query, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		s = p.streams[query]
		return s != nil
	})
	return s
}

func (p *detachedPrograms) ended(query string) error {
	p.t.Helper()
	p.mu.Lock()
	ended := p.ends[query]
	p.mu.Unlock()
	return testnet.Receive(p.t, "the end of "+query, ended)
}

func (p *detachedPrograms) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/events": // a chat's
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "retry: 1000\n\n")
		_ = http.NewResponseController(w).Flush()
	case "/poll": // a long poll: not even the status is known yet
	case "/job": // its progress, with a length
		w.Header().Set("Content-Length", "10")
	case "/panic":
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		_ = Detach(w, r, func(s *Answer) {
			p.begin(r)(s)
			panic(http.ErrAbortHandler)
		})
	case "/goexit", "/late":
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		_ = Detach(w, r, func(s *Answer) {
			p.begin(r)(s)
			if r.URL.Path == "/goexit" {
				runtime.Goexit()
			}
		})
		panic(http.ErrAbortHandler)
	default:
		_, _ = io.WriteString(w, "plain")
		return
	}
	if err := Detach(w, r, p.begin(r)); err != nil {
		p.t.Errorf("Detach failed: %v", err)
	}
	if _, wrapped := w.(wrapper); canPark && isOurs(w) && !wrapped {
		if _, err := io.WriteString(w, "x"); err == nil {
			p.t.Error("a Write of the handler after Detach succeeded")
		}
	}
}

// isOurs reports whether w is one of ours: net/http's takes another Write.
func isOurs(w http.ResponseWriter) bool {
	_, ours := w.(semantics.Detacher[h1.Answer])
	return ours
}

// A detachedArm is a way to serve the programs.
type detachedArm struct {
	name  string
	waits bool // without a goroutine
	start func(t *testing.T, h http.Handler) (url string, client *http.Client)
}

var detachedArms = []detachedArm{
	{"HTTP/1", canPark, func(t *testing.T, h http.Handler) (string, *http.Client) {
		return clientOf(t, start(t, h.ServeHTTP, nil), nil, nil)
	}},
	{"TLS", canPark, func(t *testing.T, h http.Handler) (string, *http.Client) {
		f, config := startTLS(t, h.ServeHTTP, nil)
		return clientOf(t, f, config, nil)
	}},
	{"h2c", canPark, func(t *testing.T, h http.Handler) (string, *http.Client) {
		protocols := clearHTTP2(false)
		return clientOf(t, start(t, h.ServeHTTP, func(f *fixture) { f.srv.Protocols = protocols }), nil, protocols)
	}},
	{"HTTP/2 over TLS", canPark, func(t *testing.T, h http.Handler) (string, *http.Client) {
		protocols := new(http.Protocols)
		protocols.SetHTTP2(true)
		f, config := startTLS(t, h.ServeHTTP, nil)
		config.NextProtos = []string{"h2"}
		return clientOf(t, f, config, protocols)
	}},
	{"net/http's HTTP/2", false, func(t *testing.T, h http.Handler) (string, *http.Client) {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL, s.Client()
	}},
	{"wrapped", false, func(t *testing.T, h http.Handler) (string, *http.Client) {
		return clientOf(t, start(t, func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapper{w}, r) }, nil), nil, nil)
	}},
	{"net/http", false, func(t *testing.T, h http.Handler) (string, *http.Client) {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL, s.Client()
	}},
}

// wrapper is an http.ResponseWriter of middleware.
type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// clientOf returns a client for a fixture.
func clientOf(t *testing.T, f *fixture, config *tls.Config, protocols *http.Protocols) (string, *http.Client) {
	tr := &http.Transport{Protocols: protocols, TLSClientConfig: config}
	t.Cleanup(tr.CloseIdleConnections)
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	return scheme + "://" + f.ln.Addr().String(), &http.Client{Transport: tr}
}

func eachDetachedArm(t *testing.T, do func(t *testing.T, arm detachedArm, p *detachedPrograms, url string, client *http.Client)) {
	for _, arm := range detachedArms {
		t.Run(arm.name, func(t *testing.T) {
			p := &detachedPrograms{t: t, streams: make(map[string]*Answer), ends: make(map[string]chan error)}
			url, client := arm.start(t, p)
			do(t, arm, p, url, client)
		})
	}
}

func get(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	return r
}

// TestDetachPrograms runs the programs in each way: they can't tell which.
func TestDetachPrograms(t *testing.T) {
	eachDetachedArm(t, func(t *testing.T, _ detachedArm, p *detachedPrograms, url string, client *http.Client) {
		t.Run("chat", func(t *testing.T) {
			r := get(t, client, url+"/events?chat")
			s := p.stream("chat")
			lines := bufio.NewReader(r.Body)
			for _, text := range []string{"retry: 1000", "", "data: 1", "data: 2"} {
				if n, ok := strings.CutPrefix(text, "data: "); ok {
					fmt.Fprintf(s, "data: %s\n", n)
					s.Flush()
				}
				if got, err := lines.ReadString('\n'); got != text+"\n" {
					t.Fatalf("got %q and %v, want %q", got, err, text)
				}
			}
			if err := s.Context().Err(); err != nil {
				t.Errorf("the context of an Answer that waits is cancelled: %v", err)
			}
			s.Close()
			if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
				t.Errorf("got %q and %v behind Close", rest, err)
			}
			if err := p.ended("chat"); err != nil {
				t.Errorf("OnEnd got %v", err)
			}
			testnet.Receive(t, "the context's end", s.Context().Done())
			if _, err := s.Write([]byte("x")); err != ErrAnswerClosed {
				t.Errorf("Write after Close returned %v", err)
			}
			if got := r.Header.Get("Content-Type"); got != "text/event-stream" {
				t.Errorf("got the type %q", got)
			}
		})
		t.Run("long poll", func(t *testing.T) {
			for _, status := range []int{http.StatusOK, http.StatusNoContent, http.StatusGatewayTimeout} {
				query := fmt.Sprint(status)
				answers := make(chan *http.Response, 1)
				go func() {
					r, err := client.Get(url + "/poll?" + query)
					if err != nil {
						t.Error(err)
					}
					answers <- r
				}()
				s := p.stream(query)
				s.Header().Set("X-Late", "yes")
				s.WriteHeader(status)
				want := ""
				if status != http.StatusNoContent {
					want = "the answer"
					io.WriteString(s, want)
				}
				s.Close()
				r := testnet.Receive(t, "the answer", answers)
				if r == nil {
					return
				}
				body, err := io.ReadAll(r.Body)
				r.Body.Close()
				if string(body) != want || err != nil || r.StatusCode != status || r.Header.Get("X-Late") != "yes" || r.ContentLength != int64(len(want)) {
					t.Errorf("got %v, %d bytes, %v, %q and %v", r.Status, r.ContentLength, r.Header, body, err)
				}
				if err := p.ended(query); err != nil {
					t.Errorf("OnEnd got %v", err)
				}
			}
		})
		t.Run("job", func(t *testing.T) {
			answers := make(chan *http.Response, 1)
			go func() {
				r, err := client.Get(url + "/job?job")
				if err != nil {
					t.Error(err)
				}
				answers <- r
			}()
			s := p.stream("job")
			for i := range 10 {
				fmt.Fprint(s, i)
				s.Flush()
			}
			s.Close()
			r := testnet.Receive(t, "the answer", answers)
			if r == nil {
				return
			}
			defer r.Body.Close()
			if body, err := io.ReadAll(r.Body); string(body) != "0123456789" || err != nil || r.ContentLength != 10 {
				t.Errorf("got %q and %v, length %d", body, err, r.ContentLength)
			}
		})
		t.Run("next", func(t *testing.T) {
			r := get(t, client, url+"/")
			if body, err := io.ReadAll(r.Body); string(body) != "plain" || err != nil {
				t.Errorf("got %q and %v", body, err)
			}
		})
	})
}

// TestDetachAbort: an answer that is cut is not complete.
func TestDetachAbort(t *testing.T) {
	eachDetachedArm(t, func(t *testing.T, _ detachedArm, p *detachedPrograms, url string, client *http.Client) {
		for _, path := range []string{"/events?abort", "/panic?panic", "/goexit?goexit", "/late?late"} {
			r, err := client.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			query := r.Request.URL.RawQuery
			s := p.stream(query)
			s.Abort(nil)
			if _, err := io.ReadAll(r.Body); err == nil {
				t.Errorf("%s: the answer is complete", path)
			}
			r.Body.Close()
			if err := p.ended(query); err == nil {
				t.Errorf("%s: OnEnd got nil", path)
			}
		}
	})
}

// TestDetachHeaderBehindClose: the sender has the header then, and may wait for the client with it.
func TestDetachHeaderBehindClose(t *testing.T) {
	var s Answer
	s.sender.Init(nil) // which Header would call
	s.Close()
	s.Header().Set("Late", "yes")
	if got := s.Header(); len(got) > 0 {
		t.Errorf("got the header %v", got)
	}
}

// TestDetachSlowClient: bytes that a client doesn't take wait up to the limit.
func TestDetachSlowClient(t *testing.T) {
	eachDetachedArm(t, func(t *testing.T, _ detachedArm, p *detachedPrograms, url string, client *http.Client) {
		for _, drop := range []bool{false, true} {
			query := fmt.Sprint(drop)
			r := get(t, client, url+"/events?"+query)
			s := p.stream(query)
			s.SetLimit(100_000, drop)
			piece := make([]byte, 10_000)
			var err error
			for n := 0; err == nil && n < 10_000; n++ {
				if _, err = s.Write(piece); err == nil {
					s.Flush()
					if u := s.Unsent(); u > 100_000 {
						t.Fatalf("%d bytes wait", u)
					}
				}
			}
			if err != ErrSlowClient {
				t.Fatalf("got %v", err)
			}
			_, err = s.Write(make([]byte, 200_000))
			if drop {
				if got := p.ended(query); got != ErrSlowClient || err == nil {
					t.Errorf("OnEnd got %v, and Write %v", got, err)
				}
				continue
			}
			s.Close()
			n, err := io.Copy(io.Discard, r.Body)
			if want := int64(len("retry: 1000\n\n")); (n-want)%10_000 != 0 || err != nil {
				t.Errorf("got %d bytes and %v", n, err)
			}
			if err := p.ended(query); err != nil {
				t.Errorf("OnEnd got %v", err)
			}
		}
	})
}

// TestDetachTwiceHeld: a second Detach is refused where the handler waits, too, and doesn't wait itself.
func TestDetachTwiceHeld(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	for range 2 { // it is forgotten at the end
		var again error
		err := Detach(w, r, func(s *Answer) {
			again = Detach(wrapper{w}, r, func(*Answer) { t.Error("begin was called") })
			s.Close()
		})
		if err != nil || !errors.Is(again, errDetached) {
			t.Errorf("got %v, and a second Detach in begin returned %v", err, again)
		}
	}
}

// TestDetachErrors: Detach refuses what it can't do.
func TestDetachErrors(t *testing.T) {
	var kept http.ResponseWriter
	f := startOurs(t, func(w http.ResponseWriter, r *http.Request) {
		if err := Detach(w, r, func(s *Answer) { s.Close() }); err != nil {
			t.Error(err)
		}
		if err := Detach(w, r, func(*Answer) { t.Error("begin was called") }); !errors.Is(err, errDetached) {
			t.Errorf("a second Detach returned %v", err)
		}
		if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, errDetached) {
			t.Errorf("Hijack after Detach returned %v", err)
		}
		kept = w
	}, nil)
	f.dial().get("/")
	if err := Detach(kept, httptest.NewRequest("GET", "/", nil), func(*Answer) { t.Error("begin was called") }); err == nil {
		t.Error("Detach after the handler's return succeeded")
	}
}

// TestDetachDeadline: a write deadline that has passed ends the Answer, at once or with the next write.
func TestDetachDeadline(t *testing.T) {
	eachDetachedArm(t, func(t *testing.T, _ detachedArm, p *detachedPrograms, url string, client *http.Client) {
		r := get(t, client, url+"/events?deadline")
		s := p.stream("deadline")
		if err := s.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
		_ = s.SetWriteDeadline(time.Unix(1, 0))
		io.WriteString(s, "x")
		s.Flush()
		if err := p.ended("deadline"); err == nil {
			t.Error("OnEnd got nil")
		}
		if got, err := io.ReadAll(r.Body); err == nil {
			t.Errorf("got %q, and the answer is complete", got)
		}
		if err := s.SetWriteDeadline(time.Time{}); err == nil {
			t.Error("SetWriteDeadline of an Answer that has ended returned nil")
		}
	})
}

// TestDetachTrailers: trailers that an Answer declares come behind Close.
func TestDetachTrailers(t *testing.T) {
	eachDetachedArm(t, func(t *testing.T, _ detachedArm, p *detachedPrograms, url string, client *http.Client) {
		answers := make(chan *http.Response, 1)
		go func() {
			r, err := client.Get(url + "/poll?trailers")
			if err != nil {
				t.Error(err)
			}
			answers <- r
		}()
		s := p.stream("trailers")
		h := s.Header()
		h.Set("Trailer", "Sum")
		io.WriteString(s, "x")
		s.Flush()
		r := testnet.Receive(t, "the answer", answers)
		if r == nil {
			return
		}
		defer r.Body.Close()
		s.Header().Set("Sum", "1")
		s.Close()
		if got, err := io.ReadAll(r.Body); string(got) != "x" || err != nil || r.Trailer.Get("Sum") != "1" {
			t.Errorf("got %q, %v and the trailers %v", got, err, r.Trailer)
		}
	})
}

// TestDetachCut: an answer is cut, and its connection doesn't stay open, if begin panics, even if
// middleware recovers that and returns, and if the function of OnEnd ends its goroutine, when the
// handler has done so, too, or has returned.
func TestDetachCut(t *testing.T) {
	ends := make(chan error, 1)
	for name, begin := range map[string]func(s *Answer){
		"begin panics": func(s *Answer) {
			s.OnEnd(func(err error) { ends <- err })
			panic("begin")
		},
		"OnEnd and begin end their goroutines": func(s *Answer) {
			s.OnEnd(func(error) { runtime.Goexit() })
			runtime.Goexit()
		},
		"OnEnd ends its goroutine": func(s *Answer) {
			s.OnEnd(func(error) { runtime.Goexit() })
			s.Abort(nil)
		},
	} {
		for _, arm := range detachedArms {
			t.Run(name+", "+arm.name, func(t *testing.T) {
				url, client := arm.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, "part")
					_ = http.NewResponseController(w).Flush()
					defer func() { _ = recover() }()
					_ = Detach(w, r, begin)
				}))
				if r, err := client.Get(url); err == nil { // or it has not even seen the header
					if _, err := io.ReadAll(r.Body); err == nil {
						t.Error("the answer is complete")
					}
					r.Body.Close()
				}
				if name != "begin panics" {
					return
				}
				if err := testnet.Receive(t, "OnEnd", ends); err != errPanicked {
					t.Errorf("OnEnd got %v", err)
				}
			})
		}
	}
}

// goneOwner is an owner of an answer that does nothing by itself.
type goneOwner struct {
	semantics.Owner
	worked, gone chan struct{}
}

func (o goneOwner) Work() (over, sent bool) {
	close(o.worked)
	return false, false
}

func (o goneOwner) Gone(error) bool {
	close(o.gone)
	return true
}

// TestDetachEndOfGone: the end of an answer over HTTP/2 that could not be sent counts as an error, also
// if nothing was to be sent before it.
func TestDetachEndOfGone(t *testing.T) {
	var answer httpstream.Answer
	owner := goneOwner{worked: make(chan struct{}), gone: make(chan struct{})}
	for _, arm := range detachedArms {
		if arm.name != "h2c" || !arm.waits {
			continue
		}
		url, client := arm.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			if _, _, err := w.(semantics.Detacher[httpstream.Answer]).Detach(&answer, owner); err != nil {
				t.Error(err)
			}
		}))
		r := get(t, client, url)
		testnet.Receive(t, "the sender's turn", owner.worked)
		r.Body.Close()
		testnet.Receive(t, "the client's end", owner.gone)
		if err := answer.Finish(true); err == nil {
			t.Error("the end was sent")
		}
	}
}
