package httpstream

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// blank is the start of every request: only [http.Request.WithContext] can give a request its context.
var blank http.Request

// makeRequest builds the request of a stream. If the stream must be reset, it returns false and the
// code to reset it with.
func (x *exchange) makeRequest(c *h2.Conn, from *h2.Request) (code h2.ErrCode, ok bool) {
	if from.Problem == h2.BadLength && badLengthResets {
		return h2.ProtocolError, false
	}
	u, values := makeParts(len(from.Fields))
	u, uri := target(from, u)
	if u == nil {
		return h2.ProtocolError, false
	}
	conn := c.User().(Conn)
	ctx, canceler := conn.NewContext()
	x.ctx, x.canceler = ctx, canceler
	r := &x.request
	*r = *blank.WithContext(ctx)
	r.Method, r.URL, r.RequestURI, r.Host = from.Method, u, uri, from.Authority
	r.Proto, r.ProtoMajor = "HTTP/2.0", 2
	r.RemoteAddr = conn.RemoteText()
	if from.Scheme == "https" || tlsWithAnyScheme {
		r.TLS = conn.TLSState()
	}
	r.Header = header(from, values)
	continues := takeFromHeader(r)
	r.Body = emptyBody{}
	if !from.End || continues {
		r.Body = &body{x: x, open: !from.End, continues: continues}
	}
	if !from.End {
		r.ContentLength = from.ContentLength
	}
	x.response.x, x.response.isHead = &x.part, r.Method == http.MethodHead
	x.response.status = int16(from.Problem.Status())
	return 0, true
}

// partsOfFew is memory for the URL of a request and for the values of its fields. A handler that
// keeps one of them keeps both, so this is for few.
type partsOfFew struct {
	url    url.URL
	values [fieldsFew]string
}

// fieldsFew is as many as h2load, and many programs, send.
const fieldsFew = 3

// makeParts returns memory for the URL, and for the values of n fields.
func makeParts(n int) (*url.URL, []string) {
	if n <= fieldsFew {
		m := new(partsOfFew)
		return &m.url, m.values[:]
	}
	return new(url.URL), make([]string, n)
}

// target returns the URL of a request, or nil if it can't be parsed, and the RequestURI. fresh is a
// URL that it may use.
func target(from *h2.Request, fresh *url.URL) (*url.URL, string) {
	if from.Method == http.MethodConnect && from.Protocol == "" {
		fresh.Host = from.Authority // as with HTTP/1
		return fresh, from.Authority
	}
	if path, query, ok := plainTarget(from.Path); ok {
		fresh.Path, fresh.RawQuery = path, query
		return fresh, from.Path
	}
	u, err := url.ParseRequestURI(from.Path)
	if err != nil || rootedPath && from.Path != "*" && !strings.HasPrefix(from.Path, "/") {
		return nil, ""
	}
	return u, from.Path
}

// plainTarget splits a target of which package url makes nothing else than a path and a query.
func plainTarget(s string) (path, query string, ok bool) {
	path, query, _ = strings.Cut(s, "?")
	if path == "" || path[0] != '/' || s[len(s)-1] == '?' {
		return "", "", false
	}
	for i := range len(path) {
		if !semantics.PathByte[path[i]] {
			return "", "", false
		}
	}
	for i := range len(query) {
		if b := query[i]; b <= ' ' || b == 0x7f {
			return "", "", false
		}
	}
	return path, query, true
}

// header returns the fields as a Header. The values of fields that occur once share an array, which
// has room for all.
func header(from *h2.Request, values []string) http.Header {
	h := make(http.Header, len(from.Fields))
	for i := range from.Fields {
		f := &from.Fields[i]
		semantics.AddValue(h, f.Name.Key(), f.Value, values[i:i+1:i+1])
	}
	if from.Protocol != "" {
		h[":protocol"] = []string{from.Protocol}
	}
	return h
}

// takeFromHeader removes from the header what the handler should not see, or not in that form. It
// reports whether the client waits for 100 Continue.
func takeFromHeader(r *http.Request) (continues bool) {
	h := r.Header
	if v, ok := h["Expect"]; ok && semantics.ListsToken(v, "100-continue") {
		delete(h, "Expect")
		continues = true
	}
	if lengths := h["Content-Length"]; len(lengths) > 1 && badLengthResets {
		h["Content-Length"] = lengths[:1] // all are the same
	}
	if crumbs := h["Cookie"]; len(crumbs) > 1 {
		h["Cookie"] = []string{strings.Join(crumbs, "; ")}
	}
	if values, ok := h["Trailer"]; ok {
		r.Trailer = declaredTrailers(values)
		delete(h, "Trailer")
	}
	return continues
}

// declaredTrailers returns the trailers that a request declares, without values.
func declaredTrailers(values []string) (trailer http.Header) {
	for _, v := range values {
		for key := range strings.SplitSeq(v, ",") {
			if key = http.CanonicalHeaderKey(textproto.TrimString(key)); semantics.FramesBody(key) {
				continue
			}
			if trailer == nil {
				trailer = make(http.Header)
			}
			trailer[key] = nil
		}
	}
	return trailer
}

// problem is the text of the answer to a request with a field that is not allowed.
func (x *exchange) problem() string {
	for _, name := range semantics.ConnFields {
		if _, ok := x.request.Header[name]; ok {
			return `request header "` + name + `" is not valid in HTTP/2`
		}
	}
	return `request header "TE" may only be "trailers" in HTTP/2`
}
