package http1

import (
	"context"
	"math/bits"
	"net/http"
	"net/url"
	"strings"
)

// A Message is the memory of one request: the http.Request, and all that it refers to and that need
// not be allocated by itself, except the values of its fields. It is never used for a second request,
// since handlers may keep any part.
type Message struct {
	request http.Request
	url     url.URL
}

// blank is where every request begins: [http.Request.WithContext] is the only way to give one a
// context.
var blank http.Request

// Request makes the request of the head h, which was scanned at the start of p, in m and values, which
// must be new. The values of the fields, without Host, lie in values, if there are no more of them than
// it is long, and else in memory that Request allocates. It copies all that it needs of p, once, so p
// may be overwritten afterwards.
//
// All fields are as net/http sets them, except RemoteAddr, TLS, and the Body of a request that has
// content: these are the caller's to set.
//
// It reports false if the target is none for package url; then the request is net/http's to refuse.
func (h *Head) Request(ctx context.Context, p []byte, m *Message, values []string) (r *http.Request, ok bool) {
	head := h.text(p)
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
	m.request = *blank.WithContext(ctx)
	r = &m.request
	r.Method = methodOf(head[:h.method])
	r.URL = u
	r.RequestURI = uri
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	host := h.fields[h.host]
	r.Host = head[host.value:host.valueEnd]
	r.ContentLength = h.ContentLength
	r.Close = h.Close
	r.Header = h.header(head, values)
	if h.ContentLength == 0 {
		r.Body = http.NoBody
	}
	return r, true
}

// text returns the header with the names of its fields in their canonical form. The request is made
// of parts of it.
func (h *Head) text(p []byte) string {
	if h.odd == 0 {
		return string(p[:h.Bytes])
	}
	var b strings.Builder
	b.Grow(h.Bytes)
	pos := uint32(0)
	for left := h.odd; left != 0; left &= left - 1 {
		f := &h.fields[bits.TrailingZeros64(left)]
		b.Write(p[pos:f.name])
		at := wordStart
		for _, c := range p[f.name:f.nameEnd] {
			b.WriteByte(canonical[at][c])
			at = wordRest
			if c == '-' {
				at = wordStart
			}
		}
		pos = f.nameEnd
	}
	b.Write(p[pos:h.Bytes])
	return b.String()
}

// header makes the Header, without Host, which net/http takes out.
func (h *Head) header(head string, values []string) http.Header {
	if h.Fields-1 > len(values) {
		values = make([]string, h.Fields-1)
	}
	header := make(http.Header, h.Fields-1)
	var seen uint64 // a bit for each name so far; two names may share one
	for i := range h.Fields {
		if i == h.host {
			continue
		}
		f := &h.fields[i]
		name, value := head[f.name:f.nameEnd], head[f.value:f.valueEnd]
		bit := uint64(1) << ((uint(len(name)) + 3*uint(name[0]) + 7*uint(name[len(name)-1])) % 64)
		if seen&bit != 0 {
			if vv, ok := header[name]; ok {
				header[name] = append(vv, value)
				continue
			}
		}
		seen |= bit
		values[0] = value
		header[name], values = values[:1:1], values[1:] // an append must not reach the next field's value
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
