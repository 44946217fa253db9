package http2

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/percore/percore/adapters/h2"
)

// blank is the start of every request: only [http.Request.WithContext] can give a request its
// context.
var blank http.Request

// makeRequest builds the request of a stream. If the stream must be reset, it returns false and the
// code to reset it with.
func (x *exchange) makeRequest(c *h2.Conn, from *h2.Request) (code h2.ErrCode, ok bool) {
	if from.Problem == h2.LengthWithout && lengthWithoutResets {
		return h2.ProtocolError, false
	}
	u, uri := target(from)
	if u == nil {
		return h2.ProtocolError, false
	}
	conn := x.server.Host.Conn(c)
	ctx, cancel := conn.Context()
	x.cancel = cancel
	r := blank.WithContext(ctx)
	x.request = r
	r.Method, r.URL, r.RequestURI, r.Host = from.Method, u, uri, from.Authority
	r.Proto, r.ProtoMajor = "HTTP/2.0", 2
	r.RemoteAddr = conn.RemoteAddr
	if from.Scheme == "https" {
		r.TLS = conn.TLS
	}
	r.Header = header(from)
	x.takeFromHeader(r)
	x.body = body{x: x, open: !from.End, continues: x.body.continues}
	r.Body = &x.body
	if x.body.open {
		r.ContentLength = from.ContentLength
	}
	x.response = response{x: x, isHead: r.Method == http.MethodHead}
	x.findProblem(from)
	return 0, true
}

// target returns the URL of a request, or nil if it can't be parsed, and the RequestURI.
func target(from *h2.Request) (*url.URL, string) {
	if from.Method == http.MethodConnect && from.Protocol == "" {
		return &url.URL{Host: from.Authority}, from.Authority // as with HTTP/1
	}
	if isPlainPath(from.Path) {
		path, query, _ := strings.Cut(from.Path, "?")
		return &url.URL{Path: path, RawQuery: query}, from.Path
	}
	u, err := url.ParseRequestURI(from.Path)
	if err != nil || rootedPath && from.Path != "*" && !strings.HasPrefix(from.Path, "/") {
		return nil, ""
	}
	return u, from.Path
}

// isPlainPath reports whether package url has nothing to decode in a path, except a query.
func isPlainPath(p string) bool {
	if p[0] != '/' || strings.HasPrefix(p, "//") || p[len(p)-1] == '?' {
		return false
	}
	for i := 0; i < len(p); i++ {
		if b := p[i]; b <= ' ' || b >= 0x7f || b == '%' || b == '#' {
			return false
		}
	}
	return true
}

// header returns the fields as a Header. The values of fields that occur once share an array.
func header(from *h2.Request) http.Header {
	h := make(http.Header, len(from.Fields))
	values := make([]string, len(from.Fields))
	for i := range from.Fields {
		f := &from.Fields[i]
		key := f.Name.Key()
		if have, ok := h[key]; ok {
			h[key] = append(have, f.Value)
			continue
		}
		values[i] = f.Value
		h[key] = values[i : i+1 : i+1] // an append must not reach the next field's value
	}
	if from.Protocol != "" {
		h[":protocol"] = []string{from.Protocol}
	}
	return h
}

// takeFromHeader removes from the header what the handler should not see, or not in that form.
func (x *exchange) takeFromHeader(r *http.Request) {
	h := r.Header
	if v, ok := h["Expect"]; ok && hasToken(v, "100-continue") {
		delete(h, "Expect")
		x.body.continues = true
	}
	if crumbs := h["Cookie"]; len(crumbs) > 1 {
		h["Cookie"] = []string{strings.Join(crumbs, "; ")}
	}
	if values, ok := h["Trailer"]; ok {
		r.Trailer = declaredTrailers(values)
		delete(h, "Trailer")
	}
}

// declaredTrailers returns the trailers that a request declares, without values.
func declaredTrailers(values []string) (trailer http.Header) {
	for _, v := range values {
		for key := range strings.SplitSeq(v, ",") {
			switch key = http.CanonicalHeaderKey(textproto.TrimString(key)); key {
			case "Transfer-Encoding", "Trailer", "Content-Length":
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

// findProblem looks for requests that net/http answers itself.
func (x *exchange) findProblem(from *h2.Request) {
	if x.refused = from.Problem.Status(); x.refused != http.StatusBadRequest {
		return
	}
	x.problem = `request header "TE" may only be "trailers" in HTTP/2`
	for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade"} {
		if _, ok := x.request.Header[name]; ok {
			x.problem = `request header "` + name + `" is not valid in HTTP/2`
			return
		}
	}
}

// hasToken reports whether any of the lists in values contains a token.
func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(t), token) {
				return true
			}
		}
	}
	return false
}
