package rpc

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/grpcadapter/internal/channel"
	"github.com/percore/percore/adapters/h2"
)

// This file makes the header of an attempt.

// authority returns the :authority. If the call sets it, the server must have proved that name.
func (a *attempt) authority() (string, error) {
	own := a.call.info.authority
	if own == "" {
		return a.conn.name, nil
	}
	info := a.conn.peer.AuthInfo
	validator, ok := info.(credentials.AuthorityValidator)
	if !ok {
		kind := "none"
		if info != nil {
			kind = info.AuthType()
		}
		return "", status.Errorf(codes.Unavailable, "credentials type %q does not implement the AuthorityValidator interface, "+
			"but authority override specified with CallAuthority call option", kind)
	}
	if err := validator.ValidateAuthority(own); err != nil {
		return "", status.Errorf(codes.Unavailable, "failed to validate authority %q : %v", own, err)
	}
	return own, nil
}

// request returns the request with the fields.
func (a *attempt) request(fields []h2.Field, authority string) *h2.Request {
	return &h2.Request{
		Method: http.MethodPost, Scheme: a.call.client.scheme, Path: a.call.method, Authority: authority, HasAuthority: true, Fields: fields,
	}
}

// overLimit reports whether the header exceeds the limit of the server.
func (a *attempt) overLimit(fields []h2.Field, authority string) bool {
	most := a.conn.hc.HeaderBytesMax()
	if most == 0 {
		return false
	}
	n := 4*32 + len(":method:scheme:path:authorityPOSThttps") + len(a.call.method) + len(authority)
	for i := range fields {
		n += fields[i].Size()
	}
	return n > most
}

var teTrailers = h2.MakeField("te", "trailers")

// fields returns the fields of the header, in grpc-go's order. It calls the credentials first, since
// they may use up some of the time that is left.
func (a *attempt) fields(to []h2.Field, authority string) ([]h2.Field, error) {
	s := a.call
	creds, err := a.credsFields(authority)
	if err != nil {
		return nil, err
	}
	to = append(to, contentType(s.info.subtype), s.client.userAgent, teTrailers)
	if s.retries > 0 {
		to = append(to, h2.MakeField("grpc-previous-rpc-attempts", strconv.Itoa(s.retries)))
	}
	if name := s.info.compressorName; name != "" {
		to = append(to, h2.MakeField("grpc-encoding", name))
	}
	if s.client.accepts.Value != "" {
		to = append(to, s.client.accepts)
	}
	if deadline, ok := a.ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
		}
		to = append(to, h2.MakeField("grpc-timeout", encodeTimeout(left)))
	}
	to = append(to, creds...)
	md := s.md
	if s.client.stats != nil { // it may have added metadata
		md, _ = metadata.FromOutgoingContext(a.ctx)
	}
	return appendMetadata(to, md), nil
}

// credsFields returns the fields of the per-RPC credentials. If several credentials for all calls set
// the same name, the last counts.
func (a *attempt) credsFields(authority string) (fields []h2.Field, err error) {
	s := a.call
	if len(s.client.config.PerRPC) == 0 && s.info.creds == nil {
		return nil, nil
	}
	ctx := credentials.NewContextWithRequestInfo(peer.NewContext(a.ctx, &a.conn.peer), credentials.RequestInfo{Method: s.method, AuthInfo: a.conn.peer.AuthInfo})
	audience := "https://" + strings.TrimSuffix(authority, ":443")
	if i := strings.LastIndexByte(s.method, '/'); i >= 0 {
		audience += s.method[:i]
	} else {
		audience += s.method
	}
	ofAll := make(map[string]string)
	for _, creds := range s.client.config.PerRPC {
		if err := askCreds(ofAll, ctx, creds, audience, codes.Unauthenticated); err != nil {
			return nil, err
		}
	}
	fields = appendCreds(fields, ofAll)
	if creds := s.info.creds; creds != nil {
		if creds.RequireTransportSecurity() && a.conn.insecure() {
			return nil, status.Error(codes.Unauthenticated, "transport: cannot send secure credentials on an insecure connection")
		}
		ofCall := make(map[string]string)
		if err := askCreds(ofCall, ctx, creds, audience, codes.Internal); err != nil {
			return nil, err
		}
		fields = appendCreds(fields, ofCall)
	}
	return fields, nil
}

// askCreds adds the metadata of creds to a map. An error that is not a status gets the code.
func askCreds(to map[string]string, ctx context.Context, creds credentials.PerRPCCredentials, audience string, code codes.Code) error {
	data, err := creds.GetRequestMetadata(ctx, audience)
	if err != nil {
		st, ok := status.FromError(err)
		switch {
		case !ok:
			return status.Errorf(code, "transport: per-RPC creds failed due to error: %v", err)
		case channel.IsRestricted(st.Code()):
			return status.Errorf(codes.Internal, "transport: received per-RPC creds error with illegal status: %v", err)
		}
		return err
	}
	for name, value := range data {
		name = strings.ToLower(name)
		if err := validate(metadata.MD{name: {value}}); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		to[name] = value
	}
	return nil
}

func appendCreds(to []h2.Field, data map[string]string) []h2.Field {
	for name, value := range data {
		to = append(to, h2.MakeField(name, encodeValue(name, value)))
	}
	return to
}
