package httpadapter

import (
	"math"
	"net/http"
	"reflect"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// This file has the meaning of the http.Server's other fields.

// handler returns the handler that net/http calls: the Server's, which calls the user's.
func (s *Server) handler() http.Handler { return s.srv.Handler }

// headerSlop is how many bytes more than MaxHeaderBytes a header may have (initialReadLimitSize).
const headerSlop = 4096

// oddBytesMax returns how long a header may be.
func (s *Server) oddBytesMax() int {
	limit := s.srv.MaxHeaderBytes
	if limit <= 0 {
		limit = http.DefaultMaxHeaderBytes
	}
	return min(limit, math.MaxInt-headerSlop) + headerSlop
}

// plainBytesMost bounds the work of scanning a long plain header again for each of its lines. A longer
// header is odd.
const plainBytesMost = 64 << 10

// plainBytesMax returns the longest header that http1.Scan takes. It is more than turnBytes.
func (s *Server) plainBytesMax() int { return min(s.oddBytesMax(), plainBytesMost) }

// fieldsMax returns how many lines the fields of a header may have.
func fieldsMax(srv *http.Server) int {
	if n := maxHeaderValueCount(srv); n > 0 {
		return n
	}
	return http1.FieldsMax
}

// maxHeaderValueCount returns the field of that name, which http.Server has since Go 1.27.
func maxHeaderValueCount(srv *http.Server) int {
	if f := reflect.ValueOf(srv).Elem().FieldByName("MaxHeaderValueCount"); f.IsValid() && f.CanInt() {
		return int(f.Int())
	}
	return 0
}

// protocols returns the protocols that srv speaks, once net/http has set up HTTP/2: it has then
// put it into TLSNextProto unless it is switched off in one of several ways.
func protocols(srv *http.Server) http.Protocols {
	if srv.Protocols != nil {
		return *srv.Protocols
	}
	var p http.Protocols
	p.SetHTTP1(true)
	_, h2 := srv.TLSNextProto["h2"]
	p.SetHTTP2(h2)
	return p
}

// speaksHTTP2 reports whether net/http has set up HTTP/2 for srv, over TLS or in clear.
// GODEBUG=http2server=0 and the build tag nethttpomithttp2 prevent that, whatever srv.Protocols says.
func speaksHTTP2(srv *http.Server) bool {
	_, ok := srv.TLSNextProto["h2"]
	return ok
}

// isHTTP1 reports whether net/http serves HTTP/1 on a connection for which ALPN
// has chosen the protocol.
func isHTTP1(protocol string) bool {
	switch protocol {
	case "", "http/1.1", "http/1.0":
		return true
	}
	return false
}
