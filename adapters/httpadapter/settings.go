package httpadapter

import (
	"net/http"
	"reflect"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// fieldsMax returns how many lines the fields of a header may have.
func fieldsMax(srv *http.Server) int {
	if n := maxHeaderValueCount(srv); n > 0 {
		return n
	}
	return http1.FieldsMax
}

func maxHeaderValueCount(srv *http.Server) int {
	if f := fieldOfGo127(srv, "MaxHeaderValueCount"); f.IsValid() {
		return int(f.Int())
	}
	return 0
}

// prioritiesOf returns what srv does with the priorities of RFC 9218, which net/http serves since Go
// 1.27.
func prioritiesOf(srv *http.Server) h2.Priorities {
	switch f := fieldOfGo127(srv, "DisableClientPriority"); {
	case !f.IsValid():
		return h2.UnknownPriorities
	case f.Bool():
		return h2.IgnorePriorities
	}
	return h2.ServePriorities
}

// fieldOfGo127 returns a field that http.Server has since Go 1.27, or no value.
func fieldOfGo127(srv *http.Server, name string) reflect.Value {
	return reflect.ValueOf(srv).Elem().FieldByName(name)
}

// protocols returns the protocols that srv speaks, once net/http has set up HTTP/2.
func protocols(srv *http.Server) http.Protocols {
	if srv.Protocols != nil {
		return *srv.Protocols
	}
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(speaksHTTP2(srv))
	return p
}

// speaksHTTP2 reports whether net/http has set up HTTP/2 for srv, over TLS or in clear.
// GODEBUG=http2server=0 and the build tag nethttpomithttp2 prevent that, whatever srv.Protocols says.
func speaksHTTP2(srv *http.Server) bool {
	_, ok := srv.TLSNextProto["h2"]
	return ok
}
