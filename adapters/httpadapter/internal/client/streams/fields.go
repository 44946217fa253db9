package streams

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// fieldList is memory for the fields of a request over HTTP/2.
type fieldList struct {
	fields []h2.Field
	bytes  int // as RFC 9113, section 6.5.2, counts them
	traces func(name string, values []string)
}

var fieldLists = sync.Pool{New: func() any { return new(fieldList) }}

// fieldsKept is how many fields a list that is kept has room for.
const fieldsKept = 64

func (f *fieldList) release() {
	clear(f.fields)
	if f.fields, f.bytes, f.traces = f.fields[:0], 0, nil; cap(f.fields) <= fieldsKept {
		fieldLists.Put(f)
	}
}

// userAgentHTTP2 is net/http's.
const userAgentHTTP2 = "Go-http-client/2.0"

// fill makes the header of a request, as net/http does.
func (f *fieldList) fill(x *request.Request) h2.Request {
	req := x.Req
	r := h2.Request{Method: req.Method, Scheme: req.URL.Scheme, Authority: req.Host, Path: x.Target}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Authority == "" {
		r.Authority = req.URL.Host
	}
	if x.Trace != nil {
		f.traces = x.Trace.WroteHeaderField
	}
	f.note(":authority", r.Authority)
	f.note(":method", r.Method)
	f.note(":path", r.Path)
	f.note(":scheme", r.Scheme)
	if x.Body != nil && len(req.Trailer) > 0 {
		f.add(h2.MakeField("trailer", strings.Join(http1.TrailerNames(req.Trailer), ",")))
	}
	hasAgent := false
	for key, values := range req.Header {
		f.addValues(key, values, &hasAgent)
	}
	if sendsLength(x, r.Method) {
		f.add(h2.MakeField("content-length", strconv.FormatInt(x.Length, 10)))
	}
	if x.Gzip {
		f.add(h2.MakeField("accept-encoding", "gzip"))
	}
	if !hasAgent {
		f.add(h2.MakeField("user-agent", userAgentHTTP2))
	}
	r.Fields = f.fields
	return r
}

// sendsLength reports whether the request says how long its body is.
func sendsLength(x *request.Request, method string) bool {
	if x.Body == nil {
		return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
	}
	return x.Length >= 0
}

// note counts a field and reports it to the trace.
func (f *fieldList) note(name, value string) {
	f.bytes += len(name) + len(value) + 32
	if f.traces != nil {
		f.traces(name, []string{value})
	}
}

func (f *fieldList) add(field h2.Field) {
	f.fields = append(f.fields, field)
	f.note(field.Name.String(), field.Value)
}

// addValues adds the fields of a key, except those that HTTP/2 lacks or has elsewhere.
func (f *fieldList) addValues(key string, values []string, hasAgent *bool) {
	if len(values) == 0 {
		*hasAgent = *hasAgent || strings.EqualFold(key, "User-Agent")
		return
	}
	first := h2.FieldOfKey(key, values[0])
	switch first.Name.String() {
	case "host", "content-length", "connection", "proxy-connection", "transfer-encoding", "upgrade", "keep-alive":
		return
	case "user-agent":
		if *hasAgent = true; values[0] == "" {
			return
		}
		values = values[:1]
	case "cookie":
		for _, v := range values {
			f.addCookies(v)
		}
		return
	}
	f.add(first)
	for _, v := range values[1:] {
		f.add(h2.FieldOfKey(key, v))
	}
}

// addCookies adds a field for each cookie (RFC 9113, section 8.2.3).
func (f *fieldList) addCookies(v string) {
	for {
		crumb, rest, found := strings.Cut(v, ";")
		if !found {
			break
		}
		f.add(h2.MakeField("cookie", crumb))
		v = strings.TrimLeft(rest, " ")
	}
	if v != "" {
		f.add(h2.MakeField("cookie", v))
	}
}

// takesFields reports whether the server takes so many bytes of fields.
func (c *Conn) takesFields(n int) bool {
	most := c.h2.HeaderBytesMax()
	return most == 0 || n <= most
}

// trailerFields returns the trailers of a request, or nil if there are none.
func (c *Conn) trailerFields(trailer http.Header) (fields []h2.Field, err error) {
	bytes := 0
	for key, values := range trailer {
		for _, v := range values {
			fields = append(fields, h2.FieldOfKey(key, v))
			bytes += fields[len(fields)-1].Size()
		}
	}
	if !c.takesFields(bytes) {
		return nil, errTrailersTooLong
	}
	return fields, nil
}

// responseHeader makes the Header and Trailer of an answer. Trailer is nil if none is declared.
func responseHeader(fields []h2.Field) (header, trailer http.Header) {
	header = make(http.Header, len(fields))
	values := make([]string, len(fields))
	for i := range fields {
		f := &fields[i]
		key := f.Name.Key()
		switch {
		case slices.Contains(semantics.ConnFields, key):
			continue // a proxy must not pass them on to HTTP/1.1
		case key == "Trailer":
			if trailer == nil {
				trailer = make(http.Header)
			}
			for name := range strings.SplitSeq(f.Value, ",") {
				if name = textproto.TrimString(name); name != "" {
					trailer[http.CanonicalHeaderKey(name)] = nil
				}
			}
			continue
		}
		semantics.AddValue(header, key, f.Value, values[i:i+1:i+1])
	}
	return header, trailer
}

// takeContentLength returns the length that an answer declares, or -1. It removes an invalid field,
// which doesn't matter over HTTP/2, because the user may pass the answer on over HTTP/1.1.
func takeContentLength(h http.Header) int64 {
	lengths, ok := h["Content-Length"]
	if !ok {
		return -1
	}
	n, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil || slices.ContainsFunc(lengths[1:], func(other string) bool { return other != lengths[0] }) {
		delete(h, "Content-Length")
		return -1
	}
	h["Content-Length"] = lengths[:1]
	return int64(n)
}
