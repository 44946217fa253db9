package target

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/selfsigned"
)

// The timeouts of Scenario.Timeouts: usual values that no request here reaches.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
)

// newHTTPServer returns an http.Server as a user would write it: only the handler and, if wanted,
// the timeouts differ from the defaults. The adapter, if wanted, has its default settings.
func newHTTPServer(order *scenario.Order) (*server, error) {
	s := new(server)
	h, err := s.handler(order)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: h}
	if order.Timeouts {
		srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout = readHeaderTimeout, readTimeout, writeTimeout, idleTimeout
	}
	if order.HTTP2 {
		srv.Protocols = new(http.Protocols)
		srv.Protocols.SetHTTP1(true)
		srv.Protocols.SetHTTP2(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
	}
	if order.TLS {
		cert, err := selfsigned.New("")
		if err != nil {
			return nil, err
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	serve, serveTLS := srv.Serve, srv.ServeTLS
	if order.Engine.Kind == scenario.FastPath {
		past := httpadapter.Wrap(srv)
		serve, serveTLS = past.Serve, past.ServeTLS
		s.fastPath = func() uint64 { return past.Stats().Requests }
	}
	if s.serve = serve; order.TLS {
		s.serve = func(l net.Listener) error { return serveTLS(l, "", "") }
	}
	return s, nil
}

// handler returns the handler of one of the HTTP apps. It sets poll if handlers wait.
func (s *server) handler(order *scenario.Order) (http.Handler, error) {
	switch order.App {
	case scenario.AppHTTP:
		return http.HandlerFunc(hello), nil
	case scenario.AppJSON:
		return document(order.Answer), nil
	case scenario.AppWaiting:
		s.poll = newLongPoll(order.Engine.Detach)
		return s.poll, nil
	case scenario.AppSpin:
		return spinner(order.SpinIterations), nil
	case scenario.AppFiles:
		return http.FileServer(http.Dir(order.FileDir)), nil
	case scenario.AppUpload:
		return http.HandlerFunc(upload), nil
	case scenario.AppMirror:
		return http.HandlerFunc(mirror), nil
	case scenario.AppUpgrade:
		return http.HandlerFunc(upgrade), nil
	case scenario.AppProxyHTTP:
		return reverseProxy(order), nil
	case scenario.AppCaller:
		c := newCaller(order)
		return c, c.err
	}
	return nil, fmt.Errorf("unknown server %q", order.App)
}

// helloBody is the answer of all handlers except the file server.
var helloBody = []byte("Hello, world!\n")

func hello(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Write(helloBody)
}

// document returns a handler that answers with a list of records in JSON, about size bytes long. Like
// most handlers, it doesn't announce the length.
func document(size int) http.HandlerFunc {
	const record = `{"id":1000,"name":"Ada Lovelace","email":"ada@example.org","tags":["first","analyst"]}`
	doc := []byte("[" + record + strings.Repeat(","+record, max(0, size/len(record)-1)) + "]")
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(doc)
	}
}

// longPoll holds handlers until release, or with detach the answers that they have detached. As an HTTP
// handler it says hello: on WaitPath after release, otherwise at once.
type longPoll struct {
	arrived  chan struct{} // has an element for each handler that has begun to wait
	released chan struct{} // closed by release
	detach   bool

	mu       sync.Mutex
	detached map[any]func() // what ends each answer; guarded by mu
}

// waitersMax is how many handlers longPoll can count: more than a machine has ports.
const waitersMax = 1 << 16

func newLongPoll(detach bool) *longPoll {
	return &longPoll{
		arrived: make(chan struct{}, waitersMax), released: make(chan struct{}),
		detach: detach, detached: make(map[any]func()),
	}
}

// release ends all waits. It is called once, when await has returned.
func (p *longPoll) release() {
	close(p.released)
	p.mu.Lock()
	all := maps.Clone(p.detached) // ending one calls forget
	p.mu.Unlock()
	for _, end := range all {
		end()
	}
}

func (p *longPoll) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == scenario.WaitPath && p.detach:
		err := httpadapter.Detach(w, r, func(s *httpadapter.Answer) {
			p.keep(s, func() {
				hello(s, nil)
				s.Close()
			})
			s.OnEnd(func(error) { p.forget(s) })
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	case r.URL.Path != scenario.WaitPath || p.wait(r.Context()) == nil:
		hello(w, r)
	}
}

// keep registers a detached answer, which release ends.
func (p *longPoll) keep(s any, end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.detached[s] = end
	p.arrived <- struct{}{}
}

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

// spinner returns a handler that burns turns of spin and then says hello.
func spinner(turns int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		runtime.KeepAlive(spin(turns))
		hello(w, r)
	}
}

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

func reverseProxy(order *scenario.Order) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: order.Behind})
		},
		Transport:  transport(order, order.Own && order.Engine.Kind == scenario.FastPath),
		BufferPool: proxyBuffers{},
	}
}

// proxyBuffers is the BufferPool of a reverse proxy. Without one each answer costs 32 KiB of new
// memory, more than all else that a proxy does.
type proxyBuffers struct{}

var proxyBuffer = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (proxyBuffers) Get() []byte  { return proxyBuffer.Get().(*[32 << 10]byte)[:] }
func (proxyBuffers) Put(b []byte) { proxyBuffer.Put((*[32 << 10]byte)(b)) }
