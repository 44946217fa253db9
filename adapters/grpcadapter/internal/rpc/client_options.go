package rpc

import (
	"math"
	"reflect"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// callInfo holds the options of a call.
type callInfo struct {
	failFast              bool
	sendMost, receiveMost int // bytes of a message; unset: the service config's limit, or the default
	retryMost             int // bytes kept for a retry
	authority, subtype    string
	compressorName        string
	compressor            encoding.Compressor
	creds                 credentials.PerRPCCredentials
	codec                 Codec  // nil: protobuf
	codecName             string // the name of a forced codec
}

// The defaults of a call, as in grpc-go.
const (
	clientReceiveMost = 4 << 20
	clientSendMost    = math.MaxInt32
	clientRetryMost   = 256 << 10
)

const unset = math.MinInt // no option is smaller

// callInfoOf returns the options of a call in one struct. An unknown option makes the call fail.
func callInfoOf(opts []grpc.CallOption, mc *methodConfig) (*callInfo, error) {
	if len(opts) > 0 {
		return parseOptions(opts, mc)
	}
	info, err := mc.plain.Load(), error(nil)
	if info == nil {
		info, err = parseOptions(nil, mc)
		mc.plain.Store(info)
	}
	return info, err
}

func parseOptions(opts []grpc.CallOption, mc *methodConfig) (*callInfo, error) {
	info := &callInfo{failFast: true, sendMost: unset, receiveMost: unset, retryMost: clientRetryMost}
	if mc.WaitForReady != nil {
		info.failFast = !*mc.WaitForReady
	}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.EmptyCallOption, grpc.StaticMethodCallOption, grpc.HeaderCallOption, grpc.TrailerCallOption,
			grpc.PeerCallOption, grpc.OnFinishCallOption:
		case grpc.FailFastCallOption:
			info.failFast = o.FailFast
		case grpc.MaxRecvMsgSizeCallOption:
			info.receiveMost = o.MaxRecvMsgSize
		case grpc.MaxSendMsgSizeCallOption:
			info.sendMost = o.MaxSendMsgSize
		case grpc.MaxRetryRPCBufferSizeCallOption:
			info.retryMost = o.MaxRetryRPCBufferSize
		case grpc.AuthorityOverrideCallOption:
			info.authority = o.Authority
		case grpc.PerRPCCredsCallOption:
			info.creds = o.Creds
		case grpc.CompressorCallOption:
			info.compressorName = o.CompressorType
		case grpc.ContentSubtypeCallOption:
			info.subtype = o.ContentSubtype
		case grpc.ForceCodecCallOption:
			info.codec, info.codecName = OldCodec{o.Codec}, o.Codec.Name()
		case grpc.ForceCodecV2CallOption:
			info.codec, info.codecName = o.CodecV2, o.CodecV2.Name()
		case grpc.CustomCodecCallOption:
			info.codec, info.codecName = OldCodec{o.Codec}, ""
		default:
			if embedsEmpty(o) {
				continue // an interceptor defines it, and grpc-go ignores it too
			}
			return info, status.Errorf(codes.Unimplemented, "grpcadapter: the client does not know the grpc.CallOption %T: "+
				"leave it out, or make the call with a grpc.ClientConn", o)
		}
	}
	info.sendMost = least(mc.MaxReqSize, info.sendMost, clientSendMost)
	info.receiveMost = least(mc.MaxRespSize, info.receiveMost, clientReceiveMost)
	if err := info.findCodec(); err != nil {
		return info, err
	}
	if name := info.compressorName; name != "" && name != encoding.Identity {
		if info.compressor = encoding.GetCompressor(name); info.compressor == nil {
			return info, status.Errorf(codes.Internal, "grpc: Compressor is not installed for requested grpc-encoding %q", name)
		}
	}
	return info, nil
}

// embedsEmpty reports whether an option has only the methods of an embedded EmptyCallOption.
func embedsEmpty(o grpc.CallOption) bool {
	t := reflect.TypeOf(o)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return false
	}
	f, ok := t.FieldByName("EmptyCallOption")
	return ok && f.Anonymous && f.Type == reflect.TypeFor[grpc.EmptyCallOption]()
}

// least returns the smaller of the limits that are set, or the default; see grpc-go's getMaxSize.
func least(ofConfig *int, ofCall, byDefault int) int {
	switch {
	case ofConfig == nil && ofCall == unset:
		return byDefault
	case ofConfig == nil:
		return ofCall
	case ofCall == unset:
		return *ofConfig
	}
	return min(*ofConfig, ofCall)
}

// findCodec finds the codec of the content-subtype.
func (info *callInfo) findCodec() error {
	if info.codec != nil { // its name is sent, unless there is a subtype
		if info.subtype == "" {
			info.subtype = strings.ToLower(info.codecName)
		}
		return nil
	}
	if info.subtype == "" {
		return nil
	}
	if info.codec = codecOf(info.subtype); info.codec == nil {
		return status.Errorf(codes.Internal, "no codec registered for content-subtype %s", info.subtype)
	}
	return nil
}
