package httpadapter

import (
	"crypto/tls"
	"net"
	"reflect"
	"sync"

	"github.com/percore/percore"
)

// This file is for listeners that tls.NewListener has made around percore's, which programs pass to
// Serve. Connections are accepted from the listener below, as without TLS.
//
// crypto/tls doesn't show the configuration of its listener. But that is a struct whose first field, the
// listener below, is exported. A copy of the struct with another listener in that field makes the same
// *tls.Conn of a connection as the original. If a version of crypto/tls has another struct, net/http
// serves such listeners.

// tlsSide makes the server's side of TLS above nc. It is not safe for concurrent use.
type tlsSide func(nc net.Conn) *tls.Conn

// tlsListenerType is the type of what tls.NewListener returns.
var tlsListenerType = reflect.TypeOf(tls.NewListener(nil, nil))

// tlsListenerBelow is the name of its field for the listener below.
const tlsListenerBelow = "Listener"

// knowsTLSListener reports whether crypto/tls's listener is the struct that is known here.
var knowsTLSListener = sync.OnceValue(func() bool {
	t := tlsListenerType
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || t.Elem().NumField() != 2 {
		return false
	}
	below, config := t.Elem().Field(0), t.Elem().Field(1)
	return below.Name == tlsListenerBelow && below.Anonymous && below.Type == reflect.TypeFor[net.Listener]() &&
		config.Type == reflect.TypeFor[*tls.Config]()
})

// belowTLS returns percore's listener below l if tls.NewListener has made l of one, or nil.
func belowTLS(l net.Listener) *percore.Listener {
	if reflect.TypeOf(l) != tlsListenerType || !knowsTLSListener() || reflect.ValueOf(l).IsNil() {
		return nil
	}
	below, _ := reflect.ValueOf(l).Elem().FieldByName(tlsListenerBelow).Interface().(*percore.Listener)
	return below
}

// tlsSideOf returns the tlsSide of l, for which belowTLS has returned a listener.
func tlsSideOf(l net.Listener) tlsSide {
	accepts := new(oneConn)
	own := reflect.New(tlsListenerType.Elem())
	own.Elem().Set(reflect.ValueOf(l).Elem())
	own.Elem().FieldByName(tlsListenerBelow).Set(reflect.ValueOf(accepts))
	wrapper := own.Interface().(net.Listener)
	return func(nc net.Conn) *tls.Conn {
		accepts.next = nc
		tc, _ := wrapper.Accept() // which fails only if the listener below does
		return tc.(*tls.Conn)
	}
}

// oneConn is a listener that accepts next.
type oneConn struct {
	net.Listener // nil
	next         net.Conn
}

func (l *oneConn) Accept() (net.Conn, error) { return l.next, nil }
