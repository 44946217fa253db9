package httpadapter

import (
	"math"
	"net/http"
	"reflect"
)

// This file has the meaning of the http.Server's other fields.

// handler returns the handler that net/http calls: the Server's, which calls the user's.
func (s *Server) handler() http.Handler { return s.srv.Handler }

// headerBytesMost bounds the memory of a client that sends a long header slowly, and the work of
// scanning it again for each of its lines. Longer headers go to net/http.
const headerBytesMost = 64 << 10

// headerBytesMax returns the longest header that the fast path takes: as long as net/http's, which has
// so many bytes of slop, if that is not more than headerBytesMost. It is more than turnBytes.
func (s *Server) headerBytesMax() int {
	const slop = 4096
	limit := s.srv.MaxHeaderBytes
	if limit <= 0 {
		limit = http.DefaultMaxHeaderBytes
	}
	return min(limit, headerBytesMost-slop) + slop
}

// fieldsMax returns how many fields of a header srv takes. Its field for that is there since Go 1.27,
// and what net/http takes by default is more than the fast path takes.
func fieldsMax(srv *http.Server) int {
	if f := reflect.ValueOf(srv).Elem().FieldByName("MaxHeaderValueCount"); f.IsValid() && f.CanInt() && f.Int() > 0 {
		return int(f.Int())
	}
	return math.MaxInt
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
