package frameworks

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// onHTTP2 runs a script over HTTP/2, in clear and over TLS, on net/http's server and on percore's. The
// server that start makes speaks HTTP/1.1 as well.
func onHTTP2(t *testing.T, script func(s *stage, start func(*http.Server) *site)) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%t", secure), func(t *testing.T) {
			onWays(t, http2Ways, func(s *stage) {
				script(s, func(srv *http.Server) *site {
					with := setup{http2: !secure}
					if secure {
						with.serverTLS, with.clientTLS = testnet.TLS(s)
					}
					srv.Protocols = allProtocols()
					srv.ErrorLog = log.New(io.Discard, "", 0)
					st := s.start(srv, with)
					st.adapter = nil // connections of HTTP/2 are not parked
					return st
				})
			})
		})
	}
}

func allProtocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// TestFrameworksHTTP2 visits the apps over HTTP/2.
func TestFrameworksHTTP2(t *testing.T) {
	dir := t.TempDir()
	content := strings.Repeat("0123456789", fileBytes/10)
	if err := os.WriteFile(filepath.Join(dir, "file.bin"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range apps {
		t.Run(a.name, func(t *testing.T) {
			onHTTP2(t, func(s *stage, start func(*http.Server) *site) {
				l := newLow()
				st := start(&http.Server{Handler: a.handler(l, dir)})
				visitPages(st, content)
				watchStream(st, l)
				goAway(st, l)
				r, w := io.Pipe()
				defer w.Close()
				s.want("a deadline", st.do("POST", "/late", "text/plain", r), "set: <nil>, timeout true")
				s.want("the last page", st.get("/hello/last"), "hello last")
			})
		})
	}
}

// rareParts returns a handler that uses parts of net/http that few handlers use.
func rareParts(dir string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/push", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, w.(http.Pusher).Push("/pushed", &http.PushOptions{Header: http.Header{"X-A": {"b"}}}))
	})
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(w, r.Body)
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			fmt.Fprint(w, "limit ", large.Limit)
			return
		}
		fmt.Fprint(w, " copied ", n, " ", err)
	})
	mux.Handle("/limited", http.MaxBytesHandler(echo, 1000))
	mux.Handle("/late", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		_, err := io.WriteString(w, "too late")
		if err == nil {
			panic("a Write behind the timeout did not fail")
		}
	}), time.Millisecond, "that took too long"))
	mux.Handle("/in-time", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-A", "b")
		err := w.(http.Pusher).Push("/pushed", nil)
		fmt.Fprint(w, strings.Repeat("in time ", 10_000), err)
	}), testnet.HangTimeout, ""))
	mux.Handle("/files/", http.StripPrefix("/files/", http.FileServer(http.Dir(dir))))
	mux.HandleFunc("/deadlines", func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		set := errors.Join(rc.EnableFullDuplex(), rc.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, err := io.ReadAll(r.Body)
		fmt.Fprintln(w, set, err, errors.Is(err, os.ErrDeadlineExceeded), rc.SetReadDeadline(time.Time{}))
		set = errors.Join(rc.SetWriteDeadline(time.Now().Add(testnet.HangTimeout)), rc.SetWriteDeadline(time.Time{}), rc.Flush())
		_, _, err = rc.Hijack()
		fmt.Fprintln(w, set, err)
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_, _ = io.WriteString(w, "beginning")
		_ = rc.Flush()
		_ = rc.SetWriteDeadline(time.Now().Add(time.Millisecond))
		<-r.Context().Done()
	})
	mux.HandleFunc("/duplex", func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.Header().Set("Trailer", "X-Sum")
		_ = rc.Flush()
		b := make([]byte, 100)
		sum := 0
		for {
			n, err := r.Body.Read(b)
			sum += n
			if _, err := w.Write(bytes.ToUpper(b[:n])); err != nil || rc.Flush() != nil {
				return
			}
			if err != nil {
				w.Header().Set("X-Sum", fmt.Sprint(sum, err, r.Trailer))
				return
			}
		}
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		_, _ = io.WriteString(w, "hinted")
	})
	mux.HandleFunc("/form", func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1000); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f, head, err := r.FormFile("file")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		defer f.Close()
		_, onDisk := f.(*os.File)
		n, err := io.Copy(io.Discard, f)
		fmt.Fprint(w, r.FormValue("a"), head.Filename, n, err, onDisk)
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusExpectationFailed) })
	mux.HandleFunc("/abort", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("beginning ", 1000))
		panic(http.ErrAbortHandler)
	})
	mux.Handle("/echo", echo)
	mux.HandleFunc("/gone", func(w http.ResponseWriter, r *http.Request) {
		//lint:ignore SA1019 handlers use it
		notified := w.(http.CloseNotifier).CloseNotify()
		_ = http.NewResponseController(w).Flush()
		<-notified
		<-r.Context().Done()
	})
	return mux
}

// TestParts: parts of net/http that few handlers use work over HTTP/2, also behind a reverse proxy that
// speaks HTTP/2 on both sides.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	content := strings.Repeat("0123456789", fileBytes/10)
	if err := os.WriteFile(filepath.Join(dir, "file.bin"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "file.bin"), time.Time{}, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	for _, proxied := range []bool{false, true} {
		t.Run(fmt.Sprintf("proxied=%t", proxied), func(t *testing.T) {
			onHTTP2(t, func(s *stage, start func(*http.Server) *site) {
				st := start(&http.Server{Handler: rareParts(dir)})
				if proxied {
					target, err := url.Parse(st.url)
					if err != nil {
						s.Fatal(err)
					}
					st = start(&http.Server{Handler: &httputil.ReverseProxy{
						Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
						Transport: st.client.Transport,
						ErrorLog:  log.New(io.Discard, "", 0),
					}})
				}
				visitParts(st, content, proxied)
			})
		})
	}
}

func visitParts(st *site, content string, proxied bool) {
	s := st.s
	st.get("/push")
	s.want("a body within the limit", st.do("POST", "/limited", "", strings.NewReader("short")), "short copied 5 <nil>")
	st.do("POST", "/limited", "", strings.NewReader(content[:5000]))
	s.want("a handler that is late", st.get("/late"), "that took too long")
	st.get("/in-time")
	s.want("a file", st.get("/files/file.bin"), content)
	s.want("a range", st.get("/files/file.bin", "Range", "bytes=100-2000099"), content[100:2000100])
	s.want("the end of a file", st.get("/files/file.bin", "Range", "bytes=-7"), content[fileBytes-7:])
	st.get("/files/file.bin", "Range", "bytes=9999999-")
	st.get("/files/file.bin", "If-Modified-Since", "Wed, 01 Jan 2020 00:00:00 GMT")
	st.do("HEAD", "/files/file.bin", "", nil)
	st.get("/files")
	st.get("/files/none")
	st.get("/hints")
	st.countHints("/hints")
	s.want("an echo", st.do("POST", "/echo", "", strings.NewReader(content)), content+fmt.Sprint(" copied ", fileBytes, " <nil>"))
	s.want("an upload that is asked for", st.do("POST", "/echo", "", strings.NewReader(content[:70_000]), "Expect", "100-continue"), content[:70_000]+" copied 70000 <nil>")
	var form bytes.Buffer
	mw := multipart.NewWriter(&form)
	_ = mw.SetBoundary("the-same-each-time")
	_ = mw.WriteField("a", "b")
	part, _ := mw.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="f"`}})
	_, _ = io.WriteString(part, content)
	_ = mw.Close()
	st.do("POST", "/form", mw.FormDataContentType(), &form)
	st.duplex("/duplex")
	if proxied {
		return // the rest is about the handler's own stream
	}
	st.do("POST", "/refuse", "", strings.NewReader(content[:5000]), "Expect", "100-continue")
	r, w := io.Pipe()
	defer w.Close()
	st.do("POST", "/deadlines", "", r)
	for _, path := range []string{"/cut", "/abort"} {
		resp, err := st.client.Get(st.url + path)
		if err != nil {
			s.note("%s: %v", path, err)
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		s.note("%s: %s %d bytes, %v", path, resp.Status, len(b), err)
	}
	ctx, cancel := context.WithCancel(s.context())
	req, _ := http.NewRequestWithContext(ctx, "GET", st.url+"/gone", nil)
	resp, err := st.client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	cancel()
	resp.Body.Close() // Shutdown waits for the handler
}

// countHints notes the interim answers of a request.
func (st *site) countHints(path string) {
	ctx := httptrace.WithClientTrace(st.s.context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		st.s.note("interim %d %v", code, header["Link"])
		return nil
	}})
	req, _ := http.NewRequestWithContext(ctx, "GET", st.url+path, nil)
	resp, err := st.client.Do(req)
	if err != nil {
		st.s.Fatal(err)
	}
	resp.Body.Close()
}

// duplex waits for each line to come back before it sends the next, and compares the trailers.
func (st *site) duplex(path string) {
	s := st.s
	r, w := io.Pipe()
	req, _ := http.NewRequestWithContext(s.context(), "POST", st.url+path, r)
	req.Trailer = http.Header{"X-End": {"now"}}
	resp, err := st.client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	for _, word := range []string{"one", "two", "three"} {
		_, _ = io.WriteString(w, word)
		b := make([]byte, len(word))
		_, err := io.ReadFull(resp.Body, b)
		s.expect(strings.ToUpper(word)+" <nil>", "%s %v", b, err)
	}
	w.Close()
	rest, err := io.ReadAll(resp.Body)
	s.note("%q %v %v", rest, err, resp.Trailer)
}

// TestNothingLost: a server is replaced again and again, with Shutdown, while clients send requests
// with bodies, and cancel some. Each request that was not cancelled is answered: with two GOAWAYs no
// request can be on its way when the last stream is named.
func TestNothingLost(t *testing.T) {
	for name, transport := range map[string]func(dial func(context.Context, string) (net.Conn, error)) http.RoundTripper{
		"net/http": func(dial func(context.Context, string) (net.Conn, error)) http.RoundTripper {
			tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network) }}
			tr.Protocols.SetUnencryptedHTTP2(true)
			return tr
		},
		"x/net": func(dial func(context.Context, string) (net.Conn, error)) http.RoundTripper {
			//lint:ignore SA1019 programs use it
			return &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, _ string, _ *tls.Config) (net.Conn, error) {
				return dial(ctx, network)
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			replaceServers(t, transport)
		})
	}
}

func replaceServers(t *testing.T, transport func(dial func(context.Context, string) (net.Conn, error)) http.RoundTripper) {
	var addr atomic.Value
	var served atomic.Int64
	start := func() (stop func()) {
		srv := &http.Server{Protocols: allProtocols(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			if r.URL.Path == "/wait" {
				<-r.Context().Done()
				return
			}
			_, _ = io.Copy(w, r.Body)
		})}
		server := httpadapter.Wrap(srv)
		ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(ln) }()
		addr.Store(ln.Addr().String())
		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
			defer cancel()
			if err := server.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			testnet.Receive(t, "Serve ending", ended)
		}
	}
	rt := transport(func(ctx context.Context, network string) (net.Conn, error) {
		// x/net lets other requests wait for the connection that a request dials, which may be cancelled.
		return new(net.Dialer).DialContext(context.WithoutCancel(ctx), network, addr.Load().(string))
	})
	defer rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	client := &http.Client{Transport: rt}
	stop := start()
	var clients sync.WaitGroup
	done := make(chan bool)
	var answered atomic.Int64
	for i := range 8 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if rand.IntN(10) == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
					req, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com/wait", nil)
					if resp, err := client.Do(req); err == nil {
						resp.Body.Close()
					}
					cancel()
					continue
				}
				want := strings.Repeat(fmt.Sprint(i, " ", n, ","), rand.IntN(3000))
				resp, err := client.Post("http://example.com/", "text/plain", strings.NewReader(want))
				if err != nil {
					t.Errorf("client %d, request %d: %v", i, n, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != want {
					t.Errorf("client %d, request %d: got %d bytes, %v, want %d", i, n, len(got), err, len(want))
					return
				}
				answered.Add(1)
			}
		})
	}
	for range 10 {
		at := answered.Load()
		testnet.Eventually(t, "requests on the new server", func() bool { return answered.Load() > at+100 || t.Failed() })
		if t.Failed() {
			break
		}
		stopOld := stop
		stop = start()
		stopOld()
	}
	close(done)
	clients.Wait()
	stop()
	t.Logf("%d requests were answered, %d arrived", answered.Load(), served.Load())
}
