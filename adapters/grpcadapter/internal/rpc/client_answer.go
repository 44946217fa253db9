package rpc

import (
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/percore/percore/adapters/h2"
)

// This file parses the answers of servers. The texts of errors are grpc-go's.

// answerParser parses the fields of a header or of trailers.
type answerParser struct {
	isGRPC      bool
	contentType string // why isGRPC is false
	encoding    string
	code        codes.Code
	message     string
	wrong       string         // describes the last malformed field
	malformed   *status.Status // set if grpc-status is not a number
	keeps       bool           // collect md
	md          metadata.MD
}

func (p *answerParser) parse(fields []h2.Field, keep bool) {
	p.keeps = keep
	p.contentType, p.code = "malformed header: missing HTTP content-type", codes.Unknown
	for i := range fields {
		f := &fields[i]
		switch name := f.Name.String(); name {
		case "content-type":
			if _, ok := subtypeOf(f.Value); !ok {
				p.contentType = fmt.Sprintf("transport: received unexpected content-type %q", f.Value)
				continue
			}
			p.isGRPC = true
			p.add(name, f.Value)
		case "grpc-encoding":
			p.encoding = f.Value
		case "grpc-status":
			code, err := strconv.ParseInt(f.Value, 10, 32)
			if err != nil {
				p.malformed = status.New(codes.Unknown, fmt.Sprintf("transport: malformed grpc-status: %v", err))
				return
			}
			p.code = codes.Code(uint32(code))
		case "grpc-message":
			p.message = decodeMessage(f.Value)
		case "user-agent":
			p.add(name, f.Value)
		default:
			p.metadata(name, f.Value)
		}
	}
}

func (p *answerParser) metadata(name, value string) {
	if isReserved(name) {
		return
	}
	v, err := decodeValue(name, value)
	if err != nil {
		p.wrong = fmt.Sprintf("transport: malformed %s: %v", name, err)
		return
	}
	p.add(name, v)
}

func (p *answerParser) add(name, value string) {
	if !p.keeps {
		return
	}
	if p.md == nil {
		p.md = make(metadata.MD)
	}
	p.md[name] = append(p.md[name], value)
}

var okStatus = status.New(codes.OK, "")

// status returns the status in the fields, with its details.
func (p *answerParser) status() *status.Status {
	if p.code == codes.OK && p.message == "" && p.md[detailsName] == nil {
		return okStatus
	}
	if details := p.md[detailsName]; len(details) == 1 {
		st := status.New(codes.Unknown, "").Proto()
		switch err := proto.Unmarshal([]byte(details[0]), st); {
		case err != nil:
		case st.GetCode() == int32(p.code):
			return status.FromProto(st)
		default:
			return status.Newf(codes.Internal, "grpc-status-details-bin mismatch: grpc-status=%v, grpc-message=%q, grpc-status-details-bin=%+v",
				p.code, p.message, st)
		}
	}
	return status.New(p.code, p.message)
}

// codeOf returns the code of a key in a table, or Unknown if the table doesn't have the key.
func codeOf[K comparable](table map[K]codes.Code, key K) codes.Code {
	if code, ok := table[key]; ok {
		return code
	}
	return codes.Unknown
}

// codeOfHTTP maps the HTTP status of an answer that isn't gRPC to a code.
var codeOfHTTP = map[int]codes.Code{
	http.StatusBadRequest:         codes.Internal,
	http.StatusUnauthorized:       codes.Unauthenticated,
	http.StatusForbidden:          codes.PermissionDenied,
	http.StatusNotFound:           codes.Unimplemented,
	http.StatusTooManyRequests:    codes.Unavailable,
	http.StatusBadGateway:         codes.Unavailable,
	http.StatusServiceUnavailable: codes.Unavailable,
	http.StatusGatewayTimeout:     codes.Unavailable,
}

// codeOfReset maps the error code of a server's RST_STREAM to a code.
var codeOfReset = map[h2.ErrCode]codes.Code{
	h2.NoError: codes.Internal, h2.ProtocolError: codes.Internal, h2.InternalError: codes.Internal,
	h2.FlowControlError: codes.ResourceExhausted, h2.SettingsTimeout: codes.Internal, h2.StreamClosed: codes.Internal,
	h2.FrameSizeError: codes.Internal, h2.RefusedStream: codes.Unavailable, h2.Cancel: codes.Canceled,
	h2.CompressionError: codes.Internal, h2.ConnectError: codes.Internal, h2.EnhanceYourCalm: codes.ResourceExhausted,
	h2.InadequateSecurity: codes.PermissionDenied, h2.HTTP11Required: codes.Internal,
}
