package rpc

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/percore/percore/adapters/h2"
)

var authorityName = h2.MakeField(":authority", "").Name

// grpc-go's transport reads frames and fields, not requests of HTTP. The table has the rules that a
// server of HTTP checks, and what happens to a call here:
//
//	rule                                       a call that breaks it
//	:scheme is http or https                   is served: clients of unix sockets send others
//	:authority has no user information         is served: names of abstract sockets begin with "@"
//	:authority is the name of a host           is served: names of sockets are paths
//	:authority and host are the same           is served; :authority counts
//	:authority, or host, is there              is answered with 400
//	host occurs once                           is answered with 400
//	:path is there, and begins with a slash    is answered with Unimplemented
//	:method is a token                         is answered with 405, as all are but POST
//	CONNECT has an :authority and no :path     the same
//	:protocol goes with extended CONNECT       is served: the field is ignored
//	te is trailers                             is served
//	no keep-alive, proxy-connection, upgrade   is served: they are metadata
//	no transfer-encoding                       the same
//	no connection                              is reset
//	content-length is the body's               is served: each message has a length of its own
//	pseudo-header fields are known, occur      is reset
//	  once, and come first
//	names and values of fields are valid       is reset
//	trailers are allowed                       (they are; grpc-go ends the connection)
//	a client that sends GOAWAY goes            is served, also behind it
//	RST_STREAM is of a stream that was opened  (it is ignored: gRPC's C core sends it for calls that are
//	                                           cancelled before their header is written)
//
// The last three rows are about connections. Those of an http.Server keep HTTP's rules.

// newCall returns the handler of a call's stream.
func (c *conn) newCall(r *h2.Request) h2.StreamHandler {
	if r.Problem == h2.TooLarge {
		return h2.Refuse(h2.FrameSizeError)
	}
	r.ContentLength = -1 // whatever was declared: see above
	to := &call{conn: c}
	if !to.read(r) {
		return h2.Refuse(h2.ProtocolError)
	}
	return to
}

// read parses the header of a request. It reports false if the header breaks the protocol.
func (c *call) read(r *h2.Request) bool {
	c.method = r.Path
	c.fields = c.ownFields[:0]
	p := parser{call: c}
	for i := range r.Fields {
		p.field(&r.Fields[i])
	}
	if p.protocolError && p.hosts <= 1 {
		return false
	}
	c.refusal = p.refusal(r)
	if c.refusal == nil {
		c.refusal = c.admit(p.timeout, p.hasTimeout)
	}
	return true
}

// parser parses the fields of a request.
type parser struct {
	call          *call
	isGRPC        bool
	contentType   string // the last one that is not gRPC's
	hosts         int
	timeout       time.Duration
	hasTimeout    bool
	protocolError bool
	wrong         *status.Status // the last wrong field
}

// field parses a field. Metadata goes to call.fields.
func (p *parser) field(f *h2.Field) {
	c, value := p.call, f.Value
	switch name := f.Name.String(); name {
	case "content-type":
		subtype, ok := subtypeOf(f.Value)
		if !ok {
			p.contentType = f.Value
			return
		}
		p.isGRPC, c.messages.hasSubtype = true, subtype != ""
	case "grpc-encoding":
		c.messages.compression().encoding = f.Value
		return
	case "grpc-timeout":
		var err error
		p.hasTimeout = true
		if p.timeout, err = decodeTimeout(f.Value); err != nil {
			p.wrong = status.Newf(codes.Internal, "malformed grpc-timeout: %v", err)
		}
		return
	case "connection":
		p.protocolError = true
		return
	case "host":
		p.hosts++
		return
	case "user-agent":
	default:
		if isReserved(name) {
			return
		}
		v, err := decodeValue(name, f.Value)
		if err != nil {
			p.wrong = status.Newf(codes.Internal, "malformed binary metadata %q in header %q: %v", f.Value, name, err)
			return
		}
		value = v
	}
	c.fields = append(c.fields, field{f.Name, value})
}

// subtype returns what follows "application/grpc" in the content-type. The last content-type counts.
func (c *call) subtype() (subtype string) {
	if !c.messages.hasSubtype {
		return ""
	}
	for i := range c.fields {
		if f := &c.fields[i]; f.name.String() == "content-type" {
			subtype, _ = subtypeOf(f.value)
		}
	}
	return subtype
}

// accepts returns the names of the compressors that the client has announced, separated by commas.
func (c *call) accepts() string {
	var all []string
	for i := range c.fields {
		if f := &c.fields[i]; f.value != "" && f.name.String() == "grpc-accept-encoding" {
			all = append(all, f.value)
		}
	}
	return strings.Join(all, ",")
}

// refusal returns how to refuse a request with a wrong header, or nil. The checks are in grpc-go's
// order.
func (p *parser) refusal(r *h2.Request) *refusal {
	switch {
	case p.hosts > 1:
		authorities := 0
		if r.HasAuthority {
			authorities = 1
		}
		return refuse(http.StatusBadRequest, status.Newf(codes.Internal,
			"num values of :authority: %v, num values of host: %v, both must only have 1 value as per HTTP/2 spec", authorities, p.hosts))
	case !p.isGRPC:
		return refuse(http.StatusUnsupportedMediaType, status.Newf(codes.InvalidArgument, "invalid gRPC request content-type %q", p.contentType))
	case p.wrong != nil:
		return refuse(http.StatusBadRequest, p.wrong)
	case !r.HasAuthority && p.hosts == 0:
		return refuse(http.StatusBadRequest, status.New(codes.Internal, "no host or :authority header present"))
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, status.New(codes.Internal,
			fmt.Sprintf("Received a HEADERS frame with :method %q which should be POST", r.Method)))
	}
	p.call.fields = append(p.call.fields, field{authorityName, r.Authority})
	return nil
}

func refuse(httpStatus int, st *status.Status) *refusal { return &refusal{httpStatus, st} }

// admit calls the tap, and checks the deadline.
func (c *call) admit(timeout time.Duration, hasTimeout bool) *refusal {
	if hasTimeout {
		c.deadline = time.Now().Add(timeout)
	}
	if tapHandle := c.config().Tap; tapHandle != nil {
		ctx, err := tapHandle(metadata.NewIncomingContext(c.parent(), c.incoming()), &tap.Info{FullMethodName: c.method, Header: c.incoming()})
		if err != nil {
			st, ok := status.FromError(err)
			if !ok {
				st = status.New(codes.PermissionDenied, err.Error())
			}
			return refuse(http.StatusOK, st)
		}
		c.tapped = &ctx
	}
	if hasTimeout && timeout <= 0 {
		return tooLate
	}
	return nil
}

// tooLate is for a call whose deadline has passed before it is served.
var tooLate = refuse(http.StatusOK, status.New(codes.DeadlineExceeded, context.DeadlineExceeded.Error()))

// incoming returns the metadata of the request. The values of keys that occur once share an array.
func (c *call) incoming() metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.md != nil {
		return c.md
	}
	md := make(metadata.MD, len(c.fields))
	values := make([]string, len(c.fields))
	for i := range c.fields {
		f := &c.fields[i]
		name := f.name.String()
		if have, ok := md[name]; ok {
			md[name] = append(have, f.value)
			continue
		}
		values[i] = f.value
		md[name] = values[i : i+1 : i+1] // an append must not reach the next key's value
	}
	c.md = md
	return md
}

// Takes reports whether a stream is for gRPC, by its content-type.
func Takes(r *h2.Request) bool {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Name.String() == "content-type" {
			return IsGRPC(f.Value)
		}
	}
	return false
}

// IsGRPC reports whether a content-type is gRPC's. gRPC-Web has another one.
func IsGRPC(contentType string) bool {
	_, ok := subtypeOf(contentType)
	return ok
}

// errStopped answers the calls on shared connections after Stop or GracefulStop.
var errStopped = refuse(http.StatusOK, status.New(codes.Unavailable, "grpcadapter: the server has been stopped"))
