package target

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/admission"
	"github.com/percore/percore/cmd/percore/internal/selfsigned"
)

// The timeouts of Spec.Timeouts: usual values that no request here reaches.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
)

// newHTTPServer returns an http.Server as a user would write it: only the handler and, if wanted,
// the timeouts differ from the defaults. The adapter, if wanted, has its default settings.
func newHTTPServer(spec Spec) (server, error) {
	h, err := handler(spec)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: h}
	poll, _ := h.(*longPoll)
	caller, _ := h.(*caller)
	if spec.Timeouts {
		srv.ReadHeaderTimeout = readHeaderTimeout
		srv.ReadTimeout = readTimeout
		srv.WriteTimeout = writeTimeout
		srv.IdleTimeout = idleTimeout
	}
	if spec.HTTP2 {
		srv.Protocols = new(http.Protocols)
		srv.Protocols.SetHTTP1(true)
		srv.Protocols.SetHTTP2(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
	}
	if spec.TLS {
		cert, err := selfsigned.New("")
		if err != nil {
			return nil, err
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	if spec.Engine.FastPath {
		var opts []httpadapter.Option
		if spec.Engine.Limit {
			l := admission.New(admission.Limits{Handlers: BottleneckPlaces, Wait: LimitWait})
			opts = append(opts, httpadapter.LimitWork(l, nil))
		}
		return httpServer{httpadapter.Wrap(srv, opts...), srv.TLSConfig, spec.Wrapped, poll, caller}, nil
	}
	return httpServer{srv, srv.TLSConfig, spec.Wrapped, poll, caller}, nil
}

// webServer has the methods that an http.Server and an httpadapter.Server share.
type webServer interface {
	Serve(l net.Listener) error
	ServeTLS(l net.Listener, certFile, keyFile string) error
	Close() error
}

// httpServer is an http.Server, with or without its adapter, that may speak TLS.
type httpServer struct {
	webServer
	overTLS *tls.Config // nil without TLS
	wrapped bool        // see Spec
	poll    *longPoll   // the handler of AppWaiting, else nil
	caller  *caller     // the handler of AppCaller, else nil
}

func (s httpServer) longPoll() *longPoll { return s.poll }

func (s httpServer) Serve(l net.Listener) error {
	switch {
	case s.overTLS == nil:
		return s.webServer.Serve(l)
	case s.wrapped:
		return s.webServer.Serve(tls.NewListener(l, s.overTLS))
	}
	return s.ServeTLS(l, "", "")
}

// adapted returns how many requests the adapter has served over HTTP/1; zero without the adapter.
func (s httpServer) adapted() (fastPath uint64) {
	if a, ok := s.webServer.(*httpadapter.Server); ok {
		return a.HTTP1Stats().Requests
	}
	return 0
}

// handler returns the handler for one of the HTTP apps.
func handler(spec Spec) (http.Handler, error) {
	switch spec.App {
	case AppHTTP:
		return http.HandlerFunc(hello), nil
	case AppJSON:
		return document(spec.JSONBytes)
	case AppWaiting:
		return newLongPoll(spec.Engine.Detach), nil
	case AppSpin:
		return spinner(spec.SpinIterations), nil
	case AppFiles:
		return http.FileServer(http.Dir(spec.Dir)), nil
	case AppUpload:
		return http.HandlerFunc(upload), nil
	case AppMirror:
		return http.HandlerFunc(mirror), nil
	case AppUpgrade:
		return http.HandlerFunc(upgrade), nil
	case AppProxyHTTP:
		return reverseProxy(spec), nil
	case AppCaller:
		return newCaller(spec), nil
	case AppBottleneck:
		return bottleneck(), nil
	case AppEvents:
		return newEvents(spec.Engine), nil
	}
	return nil, fmt.Errorf("%q is not an HTTP server", spec.App)
}

// helloBody is the answer of all handlers except the file server.
var helloBody = []byte("Hello, world!\n")

// hello answers with a short text.
func hello(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Write(helloBody)
}

// record is an element of document's list.
type record struct {
	ID    int      `json:"id"`
	Name  string   `json:"name"`
	Email string   `json:"email"`
	Tags  []string `json:"tags"`
}

// document returns a handler that answers with a list of records in JSON, about size bytes long. It
// encodes the list once, so that the cost of the encoder doesn't count as the server's. Like most
// handlers, it doesn't announce the length.
func document(size int) (http.HandlerFunc, error) {
	r := record{1000, "Ada Lovelace", "ada@example.org", []string{"first", "analyst"}}
	one, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	list := make([]record, max(1, size/(len(one)+len(","))))
	for i := range list {
		list[i] = r
		list[i].ID += i
	}
	doc, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(doc)
	}, nil
}

// longPoll holds handlers, or with detach the answers that they have detached, until release. As an HTTP
// handler it says hello, on WaitPath after that and otherwise at once.
type longPoll struct {
	arrived  chan struct{} // has an element for each handler that has begun to wait
	released chan struct{} // closed by release
	release  func()        // ends all waits
	detach   bool

	mu       sync.Mutex
	detached map[any]func() // what ends each answer; nil once released; guarded by mu
}

// waitersMax is how many handlers longPoll can count: more than a machine has ports.
const waitersMax = 1 << 16

func newLongPoll(detach bool) *longPoll {
	p := &longPoll{
		arrived: make(chan struct{}, waitersMax), released: make(chan struct{}),
		detach: detach, detached: make(map[any]func()),
	}
	p.release = sync.OnceFunc(func() {
		close(p.released)
		p.mu.Lock()
		all := p.detached
		p.detached = nil
		p.mu.Unlock()
		for _, end := range all {
			end()
		}
	})
	return p
}

func (p *longPoll) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == WaitPath && p.detach:
		if err := httpadapter.Detach(w, r, p.keepHTTP); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	case r.URL.Path == WaitPath && p.wait(r.Context()) != nil:
		return
	}
	hello(w, r)
}

// keepHTTP says hello on s after release.
func (p *longPoll) keepHTTP(s *httpadapter.Stream) {
	p.keep(s, func() {
		hello(s, nil)
		s.Close()
	})
	s.OnEnd(func(error) { p.forget(s) })
}

// keep registers a detached answer, and has end called after release.
func (p *longPoll) keep(s any, end func()) {
	p.mu.Lock()
	late := p.detached == nil
	if !late {
		p.detached[s] = end
	}
	p.mu.Unlock()
	if late {
		end()
	}
	p.arrived <- struct{}{}
}

// forget removes a detached answer that has ended.
func (p *longPoll) forget(s any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.detached, s)
}

// wait blocks until release is called or ctx ends, whose error it returns.
func (p *longPoll) wait(ctx context.Context) error {
	p.arrived <- struct{}{}
	select {
	case <-p.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await blocks until n handlers have begun to wait. It is called once.
func (p *longPoll) await(n int) {
	for range n {
		<-p.arrived
	}
}

// spinner returns a handler that burns iterations of Spin and then says hello.
func spinner(iterations int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if Spin(iterations) == 0 { // never: xorshift doesn't reach zero
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		hello(w, r)
	}
}

// bottleneck returns the handler of AppBottleneck.
func bottleneck() http.HandlerFunc {
	places := make(chan struct{}, BottleneckPlaces)
	return func(w http.ResponseWriter, r *http.Request) {
		places <- struct{}{}
		time.Sleep(BottleneckTime)
		<-places
		hello(w, r)
	}
}

// upload reads the request's body to its end and then says hello.
func upload(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	hello(w, r)
}

// upgrade answers as a WebSocket's server does, whose library takes the connection over.
func upgrade(w http.ResponseWriter, r *http.Request) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer c.Close()
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+r.Header.Get("Upgrade")+
		"\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
}

// mirror sends the request's body back once it has come.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

// reverseProxy returns a proxy to spec.Backend.
func reverseProxy(spec Spec) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: spec.Backend})
		},
		Transport:  transport(spec.Client && spec.Engine.FastPath, 0),
		BufferPool: proxyBuffers{},
	}
}

// proxyBuffers is the BufferPool of a reverse proxy. Without one each answer costs 32 KiB of new memory,
// more than all else that a proxy does.
type proxyBuffers struct{}

var proxyBuffer = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (proxyBuffers) Get() []byte  { return proxyBuffer.Get().(*[32 << 10]byte)[:] }
func (proxyBuffers) Put(b []byte) { proxyBuffer.Put((*[32 << 10]byte)(b)) }
