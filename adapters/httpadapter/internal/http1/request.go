package http1

import (
	"context"
	"net/http"
	"net/url"
)

// A Message is the memory of one request: all that its http.Request refers to and that need not be
// allocated by itself. It is never used for a second request, since handlers may keep any part.
type Message struct {
	url    url.URL
	values [valuesInline]string
}

// valuesInline is the number of fields whose values lie in the Message itself. Browsers send about
// ten, other programs fewer.
const valuesInline = 12

// blank is where every request begins: [http.Request.WithContext] is the only way to give one a
// context, and it makes a copy.
var blank http.Request

// Request makes the request of the head h, which was scanned at the start of p, in m. It copies all
// that it needs, once, so p may be overwritten afterwards. The request has no Body yet, no RemoteAddr
// and no TLS; its other fields are those that net/http sets.
//
// It reports false if the target is none for package url; then the request is net/http's to refuse.
func (h *Head) Request(ctx context.Context, p []byte, m *Message) (r *http.Request, ok bool) {
	head := string(p[:h.Bytes])
	uri := head[h.method+1 : h.target]
	u := &m.url
	if h.escaped {
		var err error
		if u, err = url.ParseRequestURI(uri); err != nil {
			return nil, false
		}
	} else if u.Path = uri; h.query >= 0 {
		u.Path, u.RawQuery = head[h.method+1:h.query], head[h.query+1:h.target]
	}
	r = blank.WithContext(ctx)
	r.Method = methodOf(head[:h.method])
	r.URL = u
	r.RequestURI = uri
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Host = head[h.host.value:h.host.valueEnd]
	r.ContentLength = h.ContentLength
	r.Close = h.Close
	r.Header = h.header(head, m)
	return r, true
}

// header makes the Header, without Host, which net/http takes out.
func (h *Head) header(head string, m *Message) http.Header {
	values := m.values[:]
	if h.count > len(values) {
		values = make([]string, h.count)
	}
	header := make(http.Header, h.count-1)
	for i, f := range h.fields[:h.count] {
		if f == h.host {
			continue
		}
		name, value := canonical(head[f.name:f.nameEnd]), head[f.value:f.valueEnd]
		if vv, ok := header[name]; ok {
			header[name] = append(vv, value)
			continue
		}
		values[i] = value
		header[name] = values[i : i+1 : i+1] // an append must not reach the next field's value
	}
	return header
}

// methodOf returns a method without holding the rest of the header, for those that are common.
func methodOf(s string) string {
	switch s {
	case http.MethodGet:
		return http.MethodGet
	case http.MethodPost:
		return http.MethodPost
	case http.MethodHead:
		return http.MethodHead
	}
	return s
}

// canonical returns a field's name in its canonical form: a part of the header if it has that form
// already, and if not a string that is there for all requests, or a new one.
func canonical(name string) string {
	upper := true
	for i := range len(name) {
		c := name[i]
		if upper && 'a' <= c && c <= 'z' || !upper && 'A' <= c && c <= 'Z' {
			return http.CanonicalHeaderKey(name)
		}
		upper = c == '-'
	}
	return name
}
