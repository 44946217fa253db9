package http1

import (
	"context"
	"math/bits"
	"net/http"
	"net/url"
	"strings"
)

// blank is the start of every request: only [http.Request.WithContext] can give a request its context.
var blank http.Request

// Request builds the request of the head h, which was scanned at the start of p, in r, which must be
// new: handlers may keep it. Request copies what it needs from p, where it writes the fields' names in
// their canonical form. It sets all fields as net/http does, except RemoteAddr, TLS, and the Body of a
// request that has content, which the caller must set.
//
// It returns false if package url can't parse the target; then net/http must refuse the request.
func (h *Head) Request(ctx context.Context, p []byte, r *http.Request) (ok bool) {
	p = p[:h.Bytes]
	h.canonicalize(p)
	u, values := h.allocParts()
	parts := cutter{p: p}
	method := methodOf(&parts, h.method)
	uri := parts.cut(h.method+1, h.target)
	if h.escaped {
		var err error
		if u, err = url.ParseRequestURI(uri); err != nil {
			return false
		}
	} else if u.Path = uri; h.query >= 0 {
		u.Path, u.RawQuery = uri[:h.query-h.method-1], uri[h.query-h.method:]
	}
	if len(uri) > chunkBytes {
		detach(u, len(uri))
	}
	*r = *blank.WithContext(ctx)
	r.Method = method
	r.URL = u
	r.RequestURI = uri
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	if h.Is10 {
		r.Proto, r.ProtoMinor = "HTTP/1.0", 0
	}
	if h.coding >= 0 {
		r.TransferEncoding = []string{"chunked"}
	}
	r.ContentLength = h.ContentLength
	r.Close = h.Close
	r.Header, r.Host = h.header(&parts, values)
	if h.ContentLength == 0 {
		r.Body = http.NoBody
	}
	return true
}

func (h *Head) canonicalize(p []byte) {
	for left := h.odd; left != 0; left &= left - 1 {
		f := &h.fields[bits.TrailingZeros64(left)]
		at := wordStart
		for i, c := range p[f.name:f.nameEnd] {
			p[f.name+uint32(i)] = canonical[at][c]
			at = wordRest
			if c == '-' {
				at = wordStart
			}
		}
	}
}

// Memory for the URL and the values of the fields of most programs' requests, and of browsers'. A
// handler that keeps one of them keeps both, so this is for short headers.
type (
	partsOfFew struct {
		url    url.URL
		values [fieldsFew]string
	}
	partsOfMany struct {
		url    url.URL
		values [fieldsMany]string
	}
)

const (
	fieldsFew  = 3
	fieldsMany = 12
)

// allocParts returns memory for the URL, and for the values of all fields except Host.
func (h *Head) allocParts() (*url.URL, []string) {
	switch n := h.Fields - 1; {
	case h.Bytes > chunkBytes || n > fieldsMany:
		return new(url.URL), make([]string, n)
	case n > fieldsFew:
		m := new(partsOfMany)
		return &m.url, m.values[:]
	default:
		m := new(partsOfFew)
		return &m.url, m.values[:]
	}
}

// A cutter makes strings from the parts of a header, in the order of their positions. A string keeps its
// whole chunk alive, so parts share at most chunkBytes: a short header is one allocation, a long one
// several.
type cutter struct {
	p        []byte
	chunk    string // a copy of p[from:to]
	from, to int
}

// chunkBytes is the most memory that a part of a request may keep alive beyond itself.
const chunkBytes = 2 << 10

// cut returns p[start:end]. The part must not begin before the previous one.
func (c *cutter) cut(start, end int) string {
	if end > c.to {
		c.from, c.to = start, min(start+chunkBytes, len(c.p))
		if end > c.to || end-start > chunkBytes/2 && c.to < len(c.p) {
			c.to = end // a long part shares memory with no other, unless the whole header is short
		}
		c.chunk = string(c.p[c.from:c.to])
	}
	return c.chunk[start-c.from : end-c.from]
}

// detach copies the parts of a URL that would keep much of a long target alive.
func detach(u *url.URL, targetBytes int) {
	for _, s := range []*string{&u.Path, &u.RawPath, &u.RawQuery} {
		if targetBytes-len(*s) > chunkBytes {
			*s = strings.Clone(*s)
		}
	}
}

// header builds the Header without Host and Transfer-Encoding, which net/http removes, and also returns
// the host.
func (h *Head) header(parts *cutter, values []string) (header http.Header, host string) {
	header = make(http.Header, h.Fields-1)
	var seen uint64 // a bit for each name so far; two names may share a bit
	for i := range h.Fields {
		f := &h.fields[i]
		if i == h.host {
			host = parts.cut(int(f.value), int(f.valueEnd))
			continue
		}
		if i == h.coding {
			continue
		}
		name := parts.cut(int(f.name), int(f.nameEnd))
		value := parts.cut(int(f.value), int(f.valueEnd))
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
	if h.pragma {
		fixPragma(header)
	}
	return header, host
}

// fixPragma is net/http's fixPragmaCacheControl: HTTP/1.0's Pragma stands for a Cache-Control that is
// missing.
func fixPragma(header http.Header) {
	if header["Pragma"][0] != "no-cache" {
		return
	}
	if _, has := header["Cache-Control"]; !has {
		header["Cache-Control"] = []string{"no-cache"}
	}
}

// methodOf returns the method, which ends at end. Common methods don't keep memory of the request alive.
func methodOf(parts *cutter, end int) string {
	switch m := parts.p[:end]; string(m) {
	case http.MethodGet:
		return http.MethodGet
	case http.MethodPost:
		return http.MethodPost
	case http.MethodHead:
		return http.MethodHead
	case http.MethodPut:
		return http.MethodPut
	case http.MethodPatch:
		return http.MethodPatch
	case http.MethodDelete:
		return http.MethodDelete
	case http.MethodOptions:
		return http.MethodOptions
	}
	return parts.cut(0, end)
}
