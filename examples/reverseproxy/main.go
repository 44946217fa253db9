// Command reverseproxy is an HTTP proxy before several servers, with TLS in front if it has a
// certificate. It is an httputil.ReverseProxy: percore is in the listener, in Serve, and in the
// transport.
//
//	go run ./reverseproxy -to localhost:8081,localhost:8082
//	curl http://localhost:8080/
//
// A server that can't be reached gets no requests for a while.
package main

import (
	"errors"
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	to := flag.String("to", "localhost:8081", "addresses of the servers, with commas")
	cert := flag.String("cert", "", "certificate for TLS; none: HTTP in clear")
	key := flag.String("key", "", "its key")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Handler: newProxy(strings.Split(*to, ",")), ReadHeaderTimeout: 10 * time.Second}
	if *cert != "" {
		log.Fatal(httpadapter.ServeTLS(srv, ln, *cert, *key))
	}
	log.Fatal(httpadapter.Serve(srv, ln))
}

// newProxy returns the proxy. The buffers are worth it: without a BufferPool each answer's body is
// copied through 32 KiB that are allocated for it.
func newProxy(servers []string) *httputil.ReverseProxy {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 1000 // idle connections cost next to nothing
	b := &backends{transport: httpadapter.NewTransport(base)}
	for _, addr := range servers {
		b.all = append(b.all, &backend{addr: addr})
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "backend"})
			r.SetXForwarded()
		},
		Transport:  b,
		BufferPool: &buffers{},
	}
}

// backends is a transport that sends requests to one server after the other.
type backends struct {
	transport http.RoundTripper
	all       []*backend
	next      atomic.Uint64
}

// backend is a server. Once it couldn't be reached it is down for a while.
type backend struct {
	addr      string
	downUntil atomic.Int64 // Unix time in nanoseconds
}

// downTime is for how long a server is down.
const downTime = 2 * time.Second

var errAllDown = errors.New("no server can be reached")

// RoundTrip sends a request to the next server that isn't down. A request that failed goes to the
// server after it, unless a body is gone or it may have done something.
func (b *backends) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	err = errAllDown
	for range b.all {
		server := b.all[b.next.Add(1)%uint64(len(b.all))]
		if time.Now().UnixNano() < server.downUntil.Load() {
			continue
		}
		out := *req
		u := *req.URL
		u.Host, out.URL = server.addr, &u
		if resp, err = b.transport.RoundTrip(&out); err == nil || req.Context().Err() != nil {
			return resp, err
		}
		server.downUntil.Store(time.Now().Add(downTime).UnixNano())
		if req.Body != nil || req.Method != http.MethodGet && req.Method != http.MethodHead {
			return nil, err
		}
	}
	return nil, err
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }
