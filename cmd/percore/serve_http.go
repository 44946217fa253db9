package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	_ "net/http/pprof"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/httpadapter/sse"
	"github.com/percore/percore/debug"
	"github.com/percore/percore/metrics/prometheus"
)

// The times that a client may take. Uploads and downloads may go on for as long as both ends want.
const (
	readHeaderTimeout = 10 * time.Second // a header is a few packets, even from far away
	idleTimeout       = 2 * time.Minute  // longer than browsers' pauses between two clicks
)

const defaultDownload = "1073741824" // bytes

// httpEndpoints lists the HTTP server's endpoints, for the terminal.
var httpEndpoints = []struct{ Path, About string }{
	{"/", "the files of the directory"},
	{"/echo", "sends back the body it is sent; shows the request if there is none"},
	{"/websocket", "sends back the messages of WebSockets"},
	{"/clock", "the time, as server-sent events"},
	{"/download", "bytes that are 0, with ranges; ?size=" + defaultDownload},
	{"/ready", "for load balancers: 503 once the server is about to stop"},
}

func (d *demo) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(rootFS{d.root}))
	mux.HandleFunc("/echo", serveEcho)
	mux.Handle("GET /websocket", d.webSockets)
	mux.Handle("GET /clock", d.clock)
	mux.HandleFunc("GET /download", serveDownload)
	mux.Handle("GET /ready", serveReady(&d.leaving))
	return mux
}

// newHTTPServer makes an ordinary http.Server, and wraps it.
func (d *demo) newHTTPServer() {
	d.clock = sse.NewHub(sse.Config{})
	srv := &http.Server{
		Handler:           d.handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
		Protocols:         new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	if d.tls != nil {
		srv.TLSConfig = d.tls.Config()
	}
	var options []httpadapter.Option
	if d.opts.maxAge > 0 {
		options = append(options, httpadapter.MaxAge(d.opts.maxAge, 0))
	}
	d.httpServer = httpadapter.Wrap(srv, options...)
	d.httpServer.RegisterOnDrain(d.clock.Close)
}

// tick sends the time each second, until ctx ends.
func tick(ctx context.Context, clock *sse.Hub) {
	for {
		select {
		case now := <-time.After(time.Second):
			_ = clock.Broadcast(sse.Event{Data: now.Format(time.RFC3339Nano)})
		case <-ctx.Done():
			return
		}
	}
}

// serveReady answers whether a load balancer should send this process new connections.
func serveReady(leaving *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if leaving.Load() {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	}
}

// serveEcho sends back the request's body as it arrives. For GET and HEAD without a body it shows
// the request instead.
func serveEcho(w http.ResponseWriter, r *http.Request) {
	// The answer must not become a page of this site, whatever content type it claims.
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.ContentLength == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		dump, _ := httputil.DumpRequest(r, false) // without a body it doesn't fail
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(dump)
		return
	}
	w.Header().Set("Content-Type", cmp.Or(r.Header.Get("Content-Type"), "application/octet-stream"))
	w.Header().Set("Content-Security-Policy", "sandbox")
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	// By default net/http reads an HTTP/1 body to its end before it answers. Protocols that don't
	// support this call, such as HTTP/2, don't need it.
	_ = http.NewResponseController(w).EnableFullDuplex()
	if _, err := io.Copy(w, r.Body); err != nil {
		// A plain return would end a chunked response as if it were complete.
		panic(http.ErrAbortHandler)
	}
}

// serveDownload sends as many bytes as ?size= says, all 0, or the ranges of them that the client wants.
func serveDownload(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.ParseUint(cmp.Or(r.URL.Query().Get("size"), defaultDownload), 10, 63)
	if err != nil {
		http.Error(w, "size: want a number of bytes", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Etag", fmt.Sprintf(`"%d"`, size)) // the content depends only on the size
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, int64(size)))
}

// zeros is an io.ReaderAt of bytes that are 0.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// rootFS is the files below an os.Root for http.FileServer. Unlike http.FS(root.FS()), it returns
// bare *os.File values, and net/http sends those with sendfile.
type rootFS struct{ root *os.Root }

// Open opens the file or directory called name, a slash-separated path whose root is the served
// directory. Files outside it don't exist, also if a symbolic link leads there.
func (r rootFS) Open(name string) (http.File, error) {
	local, err := filepath.Localize(cmp.Or(strings.Trim(path.Clean("/"+name), "/"), "."))
	if err != nil {
		return nil, fs.ErrNotExist // NUL, or a reserved name on Windows
	}
	f, err := r.root.Open(local)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	return f, nil
}

// adminEndpoints lists the pages for the people who run the server.
var adminEndpoints = []struct{ Path, About string }{
	{"/debug/percore", "the engine, live"},
	{"/metrics", "the same for Prometheus"},
	{"/debug/pprof/", "profiles of the process"},
	{"/ready", "for load balancers: 503 once the server is about to stop"},
}

func newAdminServer(leaving *atomic.Bool, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /ready", serveReady(leaving))
	mux.Handle("GET /metrics", prometheus.Handler())
	mux.Handle("/debug/percore", debug.Handler())
	mux.Handle("/debug/pprof/", http.DefaultServeMux) // package net/http/pprof has its pages there
	return &http.Server{
		Handler:           debug.RefuseCrossOrigin(mux),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// serveAdmin serves the pages. systemd may have opened the listener, at another address than that of
// -admin.
func serveAdmin(srv *http.Server, l net.Listener) error {
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		srv.Handler = debug.RefuseHostNames(srv.Handler)
	}
	return srv.Serve(l)
}
