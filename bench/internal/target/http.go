package target

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/webserver"
)

// newHTTPServer returns an http.Server as a user would write it: nothing but the
// handler and, if wanted, the time-outs differs from the defaults. The adapter, if
// wanted, has its default settings.
func newHTTPServer(spec Spec) (server, error) {
	h, err := handler(spec)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: h}
	if spec.Timeouts {
		srv.ReadHeaderTimeout = 5 * time.Second
		srv.ReadTimeout = 30 * time.Second
		srv.WriteTimeout = 30 * time.Second
		srv.IdleTimeout = 2 * time.Minute
	}
	if spec.TLS {
		cert, err := selfSigned()
		if err != nil {
			return nil, err
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	if spec.Engine.Adapter {
		return httpServer{httpadapter.Wrap(srv), spec.TLS}, nil
	}
	return httpServer{srv, spec.TLS}, nil
}

// httpServer is an http.Server, or one in its adapter, that may speak TLS.
type httpServer struct {
	webserver.Server
	overTLS bool
}

func (s httpServer) Serve(l net.Listener) error {
	if s.overTLS {
		return s.ServeTLS(l, "", "")
	}
	return s.Server.Serve(l)
}

// unparks returns how many parked connections were used again.
func (s httpServer) unparks() uint64 {
	if a, ok := s.Server.(*httpadapter.Server); ok {
		return a.Stats().Unparks
	}
	return 0
}

// handler returns the handler of one of the HTTP apps.
func handler(spec Spec) (http.Handler, error) {
	switch spec.App {
	case AppHTTP:
		return http.HandlerFunc(hello), nil
	case AppSpin:
		return spinner(spec.SpinIterations), nil
	case AppFiles:
		return http.FileServer(http.Dir(spec.Dir)), nil
	case AppUpload:
		return http.HandlerFunc(upload), nil
	case AppProxyHTTP:
		return reverseProxy(spec.Backend), nil
	}
	return nil, fmt.Errorf("%q is not an HTTP server", spec.App)
}

// helloBody is the answer of all handlers but the file server.
var helloBody = []byte("Hello, world!\n")

// hello answers with a short text.
func hello(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Write(helloBody)
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

// upload reads the request's body to its end and then says hello.
func upload(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	hello(w, r)
}

// proxyIdleMax is how many connections to its backend the reverse proxy keeps:
// as many as any scenario has clients, since the default of two per host would
// measure how fast connections are opened.
const proxyIdleMax = 512

// reverseProxy returns a proxy to backend.
func reverseProxy(backend string) http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = proxyIdleMax
	transport.MaxIdleConns = proxyIdleMax
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: backend})
		},
		Transport: transport,
	}
}

// selfSigned makes a certificate for this process's lifetime.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
