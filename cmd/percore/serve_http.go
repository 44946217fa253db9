package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"net/http/httputil"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/httpadapter/sse"
)

// The times that a client may take. Bodies have no limit: an upload or a download may go on for as
// long as both ends want.
const (
	readHeaderTimeout = 10 * time.Second // a header is a few packets, even from far away
	idleTimeout       = 2 * time.Minute  // longer than browsers' pauses between two clicks
)

const defaultDownload = "1GiB"

// httpEndpoints lists the HTTP server's endpoints, for the terminal.
var httpEndpoints = []struct{ Path, About string }{
	{"/", "the files of the directory"},
	{"/echo", "sends back the body it is sent; shows the request if there is none"},
	{"/websocket", "sends back the messages of WebSockets"},
	{"/clock", "the time, as server-sent events"},
	{"/download", "bytes that are 0, with ranges; ?size=" + defaultDownload},
	{"/ready", "for load balancers: 503 once the server is about to stop"},
}

// newHTTPServer makes an ordinary http.Server, and wraps it.
func (d *demo) newHTTPServer() {
	d.clock = sse.NewHub(sse.Config{})
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(rootFS{d.root}))
	mux.HandleFunc("/echo", serveEcho)
	mux.Handle("GET /websocket", d.webSockets)
	mux.Handle("GET /clock", d.clock)
	mux.HandleFunc("GET /download", serveDownload)
	mux.Handle("GET /ready", serveReady(&d.leaving))
	srv := &http.Server{
		Handler:           countRequests(mux, &d.httpRequests),
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

// countRequests counts the requests to next. It doesn't wrap the ResponseWriter, because a wrapped one
// can't use sendfile.
func countRequests(next http.Handler, requests *atomic.Uint64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		next.ServeHTTP(w, r)
	})
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
	rc := http.NewResponseController(w)
	// By default net/http reads an HTTP/1 body to its end before it answers. Protocols that don't
	// support this call, such as HTTP/2, don't need it.
	_ = rc.EnableFullDuplex()
	if _, err := io.Copy(flushingWriter{w, rc}, r.Body); err != nil {
		// A plain return would end a chunked response as if it were complete.
		panic(http.ErrAbortHandler)
	}
}

// flushingWriter flushes after every Write.
type flushingWriter struct {
	w  io.Writer
	rc *http.ResponseController
}

func (f flushingWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.rc.Flush()
}

// serveDownload sends as many bytes as ?size= says, all 0, or the ranges of them that the client wants.
func serveDownload(w http.ResponseWriter, r *http.Request) {
	size, err := parseByteSize(cmp.Or(r.URL.Query().Get("size"), defaultDownload))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Etag", fmt.Sprintf(`"%d"`, size)) // the content depends only on the size
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(zeros{}, 0, size))
}

// parseByteSize reads a number of bytes such as 4096, 64KiB or 2G.
func parseByteSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMGTiB")
	unit, known := map[string]int64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[strings.TrimSuffix(s[len(digits):], "iB")]
	n, err := strconv.ParseUint(digits, 10, 63)
	if !known || err != nil || int64(n) > math.MaxInt64/unit {
		return 0, fmt.Errorf("size=%q: want a number of bytes, such as 4096, 64KiB or 2G", s)
	}
	return int64(n) * unit, nil
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
// directory. http.FileServer answers 404 for what isn't in it, also if a symbolic link leads out, and
// 403 for what is neither file nor directory: opening a named pipe would wait for a writer.
func (r rootFS) Open(name string) (http.File, error) {
	local, err := filepath.Localize(cmp.Or(strings.Trim(path.Clean("/"+name), "/"), "."))
	if err != nil {
		return nil, fs.ErrNotExist // NUL, or a reserved name on Windows
	}
	info, err := r.root.Stat(local)
	switch {
	case err != nil:
		return nil, fs.ErrNotExist
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil, fs.ErrPermission
	}
	return r.root.Open(local)
}
