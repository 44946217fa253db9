package http2

import (
	"crypto/tls"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"time"
)

// This file finds the settings that http2.ConfigureTransports of golang.org/x/net gives a base. Up to Go
// 1.26 that installs another HTTP/2 client, a copy of net/http's. From 1.27 on net/http's own client
// uses the settings of x/net's Transport. Either way HTTP/2 is served here with these settings, if
// percore has them all. Nothing public leads to them, so reflection reads the base's private map, in
// which net/http looks, too. Anything unexpected there leaves HTTP/2 to the base.

const xnetPackage = "golang.org/x/net/http2"

// settingsOfHTTP2 returns the base's settings of HTTP/2, or false if it has a client other than
// net/http's or x/net's, or settings that this package doesn't have. isUsers says that the user has set
// TLSNextProto.
func settingsOfHTTP2(base *http.Transport, isUsers bool) (*http.HTTP2Config, bool) {
	xnet, has := xnetTransport(base)
	switch {
	case !has:
		return base.HTTP2, !isUsers
	case !xnet.IsValid() || isUsers && !isXNets(base.TLSNextProto):
		return nil, false
	}
	all := new(http.HTTP2Config)
	if base.HTTP2 != nil {
		*all = *base.HTTP2
	}
	for field, v := range xnet.Fields() {
		switch {
		case !field.IsExported() || v.IsZero():
		case field.Name == "ConnPool" && v.Elem().Type().String() == "http2.noDialClientConnPool":
			// ConfigureTransports has set it
		case field.Name == "ReadIdleTimeout":
			complete(&all.SendPingTimeout, v)
		case field.Name == "PingTimeout":
			complete(&all.PingTimeout, v)
		case field.Name == "WriteByteTimeout":
			complete(&all.WriteByteTimeout, v)
		default:
			return nil, false
		}
	}
	return all, true
}

// complete sets a setting that base.HTTP2 leaves open.
func complete(to *time.Duration, v reflect.Value) {
	if *to == 0 {
		*to = time.Duration(v.Int())
	}
}

// xnetTransport returns the struct of the x/net Transport that the base was configured with. has is true
// without a valid value if something else is in its place.
func xnetTransport(base *http.Transport) (xnet reflect.Value, has bool) {
	protocols := reflect.ValueOf(base).Elem().FieldByName("altProto") // an atomic.Value of a map
	if protocols.Kind() != reflect.Struct {
		return xnet, false
	}
	if protocols = protocols.FieldByName("v"); protocols.Kind() != reflect.Interface || protocols.Elem().Kind() != reflect.Map {
		return xnet, false
	}
	// With "http/2" it has asked net/http to heed its settings, with "https" to call it.
	for _, scheme := range []string{"http/2", "https"} {
		entry := protocols.Elem().MapIndex(reflect.ValueOf(scheme))
		if !entry.IsValid() || entry.IsNil() {
			continue
		}
		entry = entry.Elem()
		if scheme == "https" && entry.Type().PkgPath() != xnetPackage {
			continue // it is net/http's own, or has no effect
		}
		if entry.Kind() != reflect.Struct || entry.NumField() != 1 || entry.Field(0).Kind() != reflect.Pointer {
			return xnet, true
		}
		if found := entry.Field(0).Elem(); found.IsValid() && found.Type().PkgPath() == xnetPackage && found.Type().Name() == "Transport" {
			xnet = found
		}
		return xnet, true
	}
	return xnet, false
}

// isXNets reports whether the functions of a base's TLSNextProto are those that x/net has set.
func isXNets(next map[string]func(string, *tls.Conn) http.RoundTripper) bool {
	for name, f := range next {
		if name != "h2" && name != "unencrypted_http2" {
			return false
		}
		code := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
		if code == nil || !strings.HasPrefix(code.Name(), xnetPackage+".configureTransport") {
			return false
		}
	}
	return true
}
