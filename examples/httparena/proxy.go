package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/percore/percore/adapters/httpadapter"
)

// newProxy returns the gateway: files of the folder below /static/, and the server at the URL for the
// rest.
func newProxy(server, static string) (http.Handler, error) {
	to, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, 1000 // idle connections cost next to nothing
	mux := http.NewServeMux()
	mux.Handle("/static/", http.StripPrefix("/static/", http.FileServer(http.Dir(static))))
	mux.Handle("/", &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		Transport:  httpadapter.NewTransport(base),
		BufferPool: &buffers{},
	})
	return mux, nil
}

// buffers is an httputil.BufferPool. Without one each answer's body is copied through 32 KiB that are
// allocated for it.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }
