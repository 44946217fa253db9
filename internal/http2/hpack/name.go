package hpack

import (
	"net/textproto"
	"strings"
)

// A Class says what a name means to a server.
type Class uint8

// The classes of names.
const (
	Regular       Class = iota
	Method              // :method
	Scheme              // :scheme
	Authority           // :authority
	Path                // :path
	Protocol            // :protocol (RFC 8441)
	Status              // :status, which no request has
	Host                // host
	ContentLength       // content-length
	TE                  // te
	Trailer             // trailer
	Priority            // priority (RFC 9218)
	Forwarded           // via and others by which a proxy says that it has forwarded a request
	Connection          // connection and the other names that RFC 9113, section 8.2.2, forbids
	UnknownPseudo       // begins with a colon, and is none of the above
	BadName             // no name of RFC 9113, section 8.2.1: not a token, upper case, empty
)

// IsPseudo reports whether names of the class begin with a colon.
func (c Class) IsPseudo() bool { return c >= Method && c <= Status || c == UnknownPseudo }

// A policy says how the encoder sends the fields of a name.
type policy uint8

const (
	index  policy = iota // with the table
	once                 // without it: the values differ from answer to answer
	secret               // never indexed (RFC 7541, section 7.1.3)
)

// A Name is the name of a field and all that depends on it alone. It never changes.
type Name struct {
	wire, key string
	class     Class
	policy    policy
	shared    bool  // the decoder interns the values
	common    bool  // there is no other Name for it
	index     uint8 // of the first entry of the static table that has it; 0 for none
	indexEnd  uint8 // behind the last such entry that has a value; 0 for none
}

// String returns the name as it is sent: in lower case.
func (n *Name) String() string { return n.wire }

// Key returns the name as the key of an http.Header: in the form of
// [textproto.CanonicalMIMEHeaderKey]. The key of a pseudo-header field is its name.
func (n *Name) Key() string { return n.key }

// Class returns the class of the name.
func (n *Name) Class() Class { return n.class }

// is reports whether two Names are the same name.
func (n *Name) is(other *Name) bool {
	return n == other || !n.common && !other.common && n.wire == other.wire
}

// NameOf returns the Name of a name in lower case. If it is not common each call makes another one.
func NameOf(wire string) *Name {
	if n := byWire[wire]; n != nil {
		return n
	}
	return newName(strings.Clone(wire))
}

// newName works out a name.
func newName(wire string) *Name {
	n := &Name{wire: wire, key: wire, class: classes[wire]}
	switch {
	case strings.HasPrefix(wire, ":"):
		if n.class == Regular {
			n.class = UnknownPseudo
		}
	case !validName(wire):
		n.class = BadName
	default:
		n.key = textproto.CanonicalMIMEHeaderKey(wire)
	}
	return n
}

// classes are the names with a meaning.
var classes = map[string]Class{
	":method": Method, ":scheme": Scheme, ":authority": Authority, ":path": Path, ":protocol": Protocol,
	":status": Status, "host": Host, "content-length": ContentLength,
	"te": TE, "trailer": Trailer, "priority": Priority,
	"via": Forwarded, "forwarded": Forwarded, "x-forwarded-for": Forwarded,
	"connection": Connection, "keep-alive": Connection, "proxy-connection": Connection,
	"transfer-encoding": Connection, "upgrade": Connection,
}

// policies are the names that the encoder doesn't index. The values of most are seldom sent twice to one
// client, and would push others out of a short table.
var policies = map[string]policy{
	":path": once, "age": once, "content-length": once, "content-range": once, "etag": once,
	"if-modified-since": once, "if-none-match": once, "last-modified": once, "location": once,
	"grpc-message": once, "grpc-timeout": once,
	"authorization": secret, "cookie": secret, "proxy-authorization": secret, "set-cookie": secret,
}

// sharedNames are the names whose values describe the client's program or the server, so many
// connections have the same ones.
var sharedNames = []string{
	":authority", ":method", "accept", "accept-charset", "accept-encoding", "accept-language",
	"cache-control", "content-type", "grpc-accept-encoding", "grpc-encoding", "origin", "pragma",
	"priority", "sec-ch-ua", "sec-ch-ua-mobile", "sec-ch-ua-platform", "sec-fetch-dest",
	"sec-fetch-mode", "sec-fetch-site", "sec-fetch-user", "te", "upgrade-insecure-requests",
	"user-agent", "x-requested-with",
}

// otherNames are in common use and neither in the static table nor in the lists above.
var otherNames = []string{
	"alt-svc", "connect-protocol-version", "connect-timeout-ms", "content-security-policy",
	"cross-origin-opener-policy", "dnt", "grpc-previous-rpc-attempts", "grpc-status",
	"grpc-status-details-bin", "permissions-policy", "referrer-policy", "save-data", "server-timing",
	"traceparent", "tracestate", "x-content-type-options", "x-forwarded-for", "x-forwarded-host",
	"x-forwarded-proto", "x-frame-options", "x-powered-by", "x-real-ip", "x-request-id",
	"x-xss-protection", "access-control-allow-credentials", "access-control-allow-headers",
	"access-control-allow-methods", "access-control-expose-headers", "access-control-max-age",
	"access-control-request-headers", "access-control-request-method",
}

// byWire and byKey have the common names.
var byWire, byKey = commonNames()

func commonNames() (wires, keys map[string]*Name) {
	wires, keys = make(map[string]*Name), make(map[string]*Name)
	get := func(wire string) *Name {
		n := wires[wire]
		if n == nil {
			n = newName(wire)
			n.common, n.policy = true, policies[wire]
			wires[wire], keys[n.key] = n, n
		}
		return n
	}
	for i, f := range staticFields {
		n := get(f.name)
		if n.index == 0 {
			n.index = uint8(i + 1)
		}
		if f.value != "" {
			n.indexEnd = uint8(i + 2)
		}
	}
	for wire := range classes {
		get(wire)
	}
	for wire := range policies {
		get(wire)
	}
	for _, wire := range sharedNames {
		get(wire).shared = true
	}
	for _, wire := range otherNames {
		get(wire)
	}
	return wires, keys
}
