// Package innards reads the private parts of a grpc.Server: its services, its options and the keys
// of its contexts. Everything that depends on the internals of grpc-go is in this file. Nothing here
// may be used before Check and FindKeys have found grpc-go as this file knows it. Even then the
// caller has to prove that calls have the same results.
package innards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"

	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
)

// known are the fields, or methods, of grpc.Server, of private types that it consists of, and of types
// that its options get: private ones with their types, others by their names, as the compiler checks
// what is used of them. A new one may be an option to obey, or a figure to provide. The fields are those
// of grpc-go 1.85 and of 1.86.0-dev, also with the change after which only StaticStreamWindowSize and
// StaticConnWindowSize set staticWindowSize.
var known = map[reflect.Type]string{
	server: "" +
		"opts grpc.serverOptions; statsHandler stats.Handler; mu sync.Mutex; " +
		"lis map[net.Listener]bool; conns map[string]map[transport.ServerTransport]bool; serve bool; " +
		"drain bool; cv *sync.Cond; services map[string]*grpc.serviceInfo; " +
		"events grpc.traceEventLog; quit *grpcsync.Event; done *grpcsync.Event; " +
		"channelzRemoveOnce sync.Once; serveWG sync.WaitGroup; handlersWG sync.WaitGroup; " +
		"channelz *channelz.Server; serverWorkerChannel chan func(); serverWorkerChannelClose func()",
	options: "" +
		"creds credentials.TransportCredentials; codec grpc.baseCodec; cp grpc.Compressor; " +
		"dc grpc.Decompressor; unaryInt grpc.UnaryServerInterceptor; " +
		"streamInt grpc.StreamServerInterceptor; chainUnaryInts []grpc.UnaryServerInterceptor; " +
		"chainStreamInts []grpc.StreamServerInterceptor; binaryLogger binarylog.Logger; " +
		"inTapHandle tap.ServerInHandle; statsHandlers []stats.Handler; maxConcurrentStreams uint32; " +
		"maxReceiveMessageSize int; maxSendMessageSize int; unknownStreamDesc *grpc.StreamDesc; " +
		"keepaliveParams keepalive.ServerParameters; keepalivePolicy keepalive.EnforcementPolicy; " +
		"initialWindowSize int32; initialConnWindowSize int32; writeBufferSize int; " +
		"readBufferSize int; sharedWriteBuffer bool; connectionTimeout time.Duration; " +
		"maxHeaderListSize *uint32; headerTableSize *uint32; numServerWorkers uint32; " +
		"bufferPool mem.BufferPool; waitForHandlers bool; staticWindowSize bool; " +
		"streamWrapper func(grpc.ServerStream) (grpc.ServerStream, error)",
	typeOf(options, "codec"):            "Marshal; Unmarshal",
	typeOf(server, "services"):          "serviceImpl interface {}; streams map[string]*grpc.StreamDesc; mdata interface {}",
	reflect.TypeFor[grpc.PreparedMsg](): "encodedData mem.BufferSlice; hdr []uint8; payload mem.BufferSlice; pf grpc.payloadFormat",

	reflect.TypeFor[grpc.StreamDesc]():                  "StreamName; Handler; ServerStreams; ClientStreams",
	reflect.TypeFor[grpc.StreamServerInfo]():            "FullMethod; IsClientStream; IsServerStream",
	reflect.TypeFor[credentials.TransportCredentials](): "ClientHandshake; Clone; Info; OverrideServerName; ServerHandshake",
	reflect.TypeFor[keepalive.ServerParameters]():       "MaxConnectionIdle; MaxConnectionAge; MaxConnectionAgeGrace; Time; Timeout",
	reflect.TypeFor[keepalive.EnforcementPolicy]():      "MinTime; PermitWithoutStream",
	reflect.TypeFor[peer.Peer]():                        "Addr; LocalAddr; AuthInfo",
	reflect.TypeFor[tap.Info]():                         "FullMethodName; Header",
	reflect.TypeFor[stats.Handler]():                    "HandleConn; HandleRPC; TagConn; TagRPC",
	reflect.TypeFor[stats.ConnTagInfo]():                "RemoteAddr; LocalAddr",
	reflect.TypeFor[stats.RPCTagInfo]():                 "FullMethodName; FailFast; NameResolutionDelay",
	reflect.TypeFor[stats.ConnBegin]():                  "Client",
	reflect.TypeFor[stats.ConnEnd]():                    "Client",
	reflect.TypeFor[stats.InHeader]():                   "Client; WireLength; Compression; Header; FullMethod; RemoteAddr; LocalAddr",
	reflect.TypeFor[stats.Begin]():                      "Client; BeginTime; FailFast; IsClientStream; IsServerStream; IsTransparentRetryAttempt",
	reflect.TypeFor[stats.InPayload]():                  "Client; Payload; Length; CompressedLength; WireLength; RecvTime",
	reflect.TypeFor[stats.OutHeader]():                  "Client; Compression; Header; Authority; FullMethod; RemoteAddr; LocalAddr",
	reflect.TypeFor[stats.OutPayload]():                 "Client; Payload; Length; CompressedLength; WireLength; SentTime",
	reflect.TypeFor[stats.OutTrailer]():                 "Client; WireLength; Trailer",
	reflect.TypeFor[stats.End]():                        "Client; BeginTime; EndTime; Trailer; Error",
}

var (
	server  = reflect.TypeFor[grpc.Server]()
	options = typeOf(server, "opts")
)

// Check returns an error unless all types are as they are known.
func Check() error { return check(known) }

func check(known map[reflect.Type]string) error {
	for t, names := range known {
		want, got := strings.Split(names, "; "), fields(t)
		for _, field := range got {
			if !slices.Contains(want, field) {
				return fmt.Errorf("field %s of %v is not known", field, t)
			}
		}
		for _, field := range want {
			if !slices.Contains(got, field) {
				return fmt.Errorf("field %s of %v is missing", field, t)
			}
		}
	}
	return nil
}

// typeOf returns the type of a field, or of the elements of a map or pointer. It returns nil if there is
// no such field.
func typeOf(of reflect.Type, field string) reflect.Type {
	if of == nil || of.Kind() != reflect.Struct {
		return nil
	}
	f, ok := of.FieldByName(field)
	if !ok {
		return nil
	}
	t := f.Type
	for t.Kind() == reflect.Map || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fields returns the fields of a struct, or the methods of an interface; private ones with their types.
// It doesn't distinguish packages with the same name; get and ptr do.
func fields(t reflect.Type) (all []string) {
	switch {
	case t == nil:
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			name := f.Name
			if !f.IsExported() {
				name += " " + f.Type.String()
			}
			all = append(all, name)
		}
	case t.Kind() == reflect.Interface:
		for m := range t.Methods() {
			all = append(all, m.Name)
		}
	}
	return all
}

// A Server is a view of a grpc.Server's fields. Check must have succeeded.
type Server struct {
	of      *grpc.Server
	fields  reflect.Value
	options reflect.Value
}

// Look returns the view of a server.
func Look(srv *grpc.Server) *Server {
	fields := reflect.ValueOf(srv).Elem()
	return &Server{of: srv, fields: fields, options: fields.FieldByName("opts")}
}

// Served reports whether Serve was called on a server. It reports false if that can't be known. It
// doesn't need Check.
func Served(srv *grpc.Server) (served bool) {
	defer func() { _ = recover() }() // of ptr: then it is not known
	fields := reflect.ValueOf(srv).Elem()
	mu, serve := ptr[sync.Mutex](fields, "mu"), ptr[bool](fields, "serve")
	mu.Lock()
	defer mu.Unlock()
	return *serve
}

// get returns the value of a field, which must have exactly the type T.
func get[T any](of reflect.Value, name string) T { return *ptr[T](of, name) }

// ptr returns a pointer to a field, which must have exactly the type T. of must be addressable.
func ptr[T any](of reflect.Value, name string) *T {
	f := of.FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		panic(fmt.Sprintf("%v has no field %s of type %v", of.Type(), name, reflect.TypeFor[T]()))
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr()))
}

// open returns a field as if it were public.
func open(of reflect.Value, name string) reflect.Value {
	f := of.FieldByName(name)
	if !f.IsValid() {
		panic(fmt.Sprintf("%v has no field %s", of.Type(), name))
	}
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

// Variables of the environment that make grpc-go do something in each call. It reads them when the
// program starts.
var (
	binaryLogs = os.Getenv("GRPC_BINARY_LOG_FILTER")
	goLabels   = os.Getenv("GRPC_GO_SERVER_GOROUTINE_LABELS")
)

// Config returns the options of the server, or an error that names an option that can't be obeyed.
//
// It leaves out these fields of grpc-go's options:
//
//   - chainUnaryInts and chainStreamInts: NewServer has put them into unaryInt and streamInt.
//   - unaryInt: the handlers of unary methods call it.
//   - statsHandlers: they are combined in statsHandler.
//   - writeBufferSize, readBufferSize and sharedWriteBuffer: there are no such buffers here.
//   - numServerWorkers: calls run on workers anyway.
//   - initialConnWindowSize: grpc-go gives that window back as soon as bytes arrive, so it doesn't limit
//     what is kept for handlers. Package h2's window of a connection does.
func (s *Server) Config() (rpc.Config, error) {
	c := rpc.DefaultConfig()
	if err := s.refusal(); err != nil {
		return c, err
	}
	o := s.options
	if intercept := get[grpc.StreamServerInterceptor](o, "streamInt"); intercept != nil {
		c.Stream = []grpc.StreamServerInterceptor{intercept}
	}
	if handler := get[stats.Handler](s.fields, "statsHandler"); handler != nil {
		c.Stats = []stats.Handler{handler}
	}
	c.Tap = get[tap.ServerInHandle](o, "inTapHandle")
	c.Unknown = get[*grpc.StreamDesc](o, "unknownStreamDesc")
	c.Pool = get[mem.BufferPool](o, "bufferPool")
	c.RecvBytesMax = get[int](o, "maxReceiveMessageSize")
	c.SendBytesMax = get[int](o, "maxSendMessageSize")
	c.Creds = get[credentials.TransportCredentials](o, "creds")
	c.BeginTimeout = get[time.Duration](o, "connectionTimeout")
	c.Keepalive = get[keepalive.ServerParameters](o, "keepaliveParams")
	c.Pings = get[keepalive.EnforcementPolicy](o, "keepalivePolicy")
	c.Streams = get[uint32](o, "maxConcurrentStreams")
	c.TableBytes = get[*uint32](o, "headerTableSize")
	if codec := open(o, "codec"); !codec.IsNil() {
		c.Codec = codec.Interface().(rpc.Codec)
	}
	if most := get[*uint32](o, "maxHeaderListSize"); most != nil {
		c.HeaderBytes = *most
	}
	if window := get[int32](o, "initialWindowSize"); get[bool](o, "staticWindowSize") {
		c.StreamWindow = max(window, windowMin)
	} else {
		c.StreamWindow = max(window, c.StreamWindow) // it would grow from there, and doesn't here
	}
	return c, nil
}

// windowMin is the smallest window. grpc-go ignores options below it.
const windowMin = math.MaxUint16

// refusal returns an error if the server does something in calls that can't be done for it.
func (s *Server) refusal() error {
	for _, o := range []struct{ field, what string }{
		{"cp", "the option RPCCompressor"},
		{"dc", "the option RPCDecompressor"},
		{"binaryLogger", "a binary log"},
		{"streamWrapper", "xDS filters"},
	} {
		if !s.options.FieldByName(o.field).IsNil() {
			return fmt.Errorf("the server has %s", o.what)
		}
	}
	creds := get[credentials.TransportCredentials](s.options, "creds")
	header := get[*uint32](s.options, "maxHeaderListSize")
	switch xds, _ := creds.(interface{ UsesXDS() bool }); {
	case xds != nil && xds.UsesXDS():
		return errors.New("the server has credentials of xDS")
	case header != nil && *header == 0:
		return errors.New("the server has the option MaxHeaderListSize(0)")
	case get[bool](s.options, "waitForHandlers"):
		// GracefulStop and Stop then wait for the same things, and a Stop that is to cut a GracefulStop
		// short can't be noticed before all calls have ended.
		return errors.New("the server has the option WaitForHandlers")
	case grpc.EnableTracing || !s.fields.FieldByName("events").IsNil():
		return errors.New("grpc.EnableTracing is set")
	case binaryLogs != "":
		return errors.New("GRPC_BINARY_LOG_FILTER is set")
	case goLabels != "":
		return errors.New("GRPC_GO_SERVER_GOROUTINE_LABELS is set")
	}
	return nil
}

// Services calls f for each registered service. It must not run while services may be registered.
func (s *Server) Services(f func(name string, impl, metadata any, methods map[string]*grpc.StreamDesc)) {
	for name, service := range open(s.fields, "services").Seq2() {
		info := service.Elem()
		f(name.String(), get[any](info, "serviceImpl"), get[any](info, "mdata"), get[map[string]*grpc.StreamDesc](info, "streams"))
	}
}

// Handlers returns the group that GracefulStop waits for.
func (s *Server) Handlers() *sync.WaitGroup { return ptr[sync.WaitGroup](s.fields, "handlersWG") }

// CallsCounted returns how many calls the server has counted. It counts only if channelz is in use.
func (s *Server) CallsCounted() int64 {
	of := open(s.fields, "channelz").Elem().FieldByName("ServerMetrics")
	return ptr[atomic.Int64](of, "CallsStarted").Load()
}

// Keys are the values that a call's context needs for functions of grpc-go that use more than its
// public interfaces.
type Keys struct {
	server, conn, info any          // the keys of the *grpc.Server, the net.Conn and the *rpcInfo
	infoType           reflect.Type // rpcInfo
	streamType         reflect.Type // transport.ServerStream
}

// contextKeys are the types of the keys that grpc-go puts into the context of a call.
const contextKeys = "grpc.rpcInfoContextKey grpc.streamKey grpc.serverKey metadata.mdIncomingKey peer.peerKey transport.connectionKey"

// FindKeys looks for the keys in the context of a handler. The server must have no stats handler, tap
// or interceptor, which may add keys of their own.
func FindKeys(ctx context.Context) (k Keys, err error) {
	var found []string
	for at := reflect.ValueOf(ctx); at.Kind() == reflect.Pointer && at.Elem().Kind() == reflect.Struct; {
		of := at.Elem()
		if of.Type().String() == "context.valueCtx" {
			key, val := get[any](of, "key"), get[any](of, "val")
			name := fmt.Sprintf("%T", key)
			found = append(found, name)
			switch name {
			case "grpc.serverKey":
				k.server = key
			case "transport.connectionKey":
				k.conn = key
			case "grpc.rpcInfoContextKey":
				k.info, k.infoType = key, reflect.TypeOf(val).Elem()
			case "grpc.streamKey":
				k.streamType = reflect.TypeOf(val).Elem()
			}
		}
		next := of.FieldByName("Context")
		if !next.IsValid() || next.IsNil() {
			break
		}
		at = next.Elem()
	}
	if got := strings.Join(found, " "); got != contextKeys {
		return k, fmt.Errorf("the contexts of calls have the keys %s, and known are %s", got, contextKeys)
	}
	k.newInfo(rpc.OldCodec{})
	k.newStream()
	return k, nil
}

// newInfo returns an *rpcInfo, from which PreparedMsg.Encode takes the codec. It has no compressor, so
// that messages are compressed when they are sent.
func (k *Keys) newInfo(codec rpc.Codec) any {
	info := reflect.New(k.infoType)
	open(open(info.Elem(), "preloaderInfo"), "codec").Set(reflect.ValueOf(codec))
	return info.Interface()
}

// newStream returns a *transport.ServerStream, and pointers to its fields.
func (k *Keys) newStream() (stream any, compressor, accepts *string, headerSent *atomic.Bool) {
	s := reflect.New(k.streamType)
	of := s.Elem()
	return s.Interface(), ptr[string](of.FieldByName("Stream"), "sendCompress"),
		ptr[string](of, "clientAdvertisedCompressors"), ptr[atomic.Bool](of, "headerSent")
}

// Imitate gives the contexts of calls the values that contexts of srv's own calls have.
func (k *Keys) Imitate(srv *grpc.Server, c *rpc.Config) {
	c.ConnValue = func(raw net.Conn, key any) any {
		switch key {
		case k.conn:
			if raw != nil { // grpc-go's ServeHTTP has none
				return raw
			}
		case k.server:
			return srv
		}
		return nil
	}
	c.CallValue = func(t *rpc.TransportStream, key any) (any, bool) {
		if key != k.info {
			return nil, false
		}
		codec := t.Codec()
		if codec == nil {
			return nil, false
		}
		return k.newInfo(codec), true
	}
	c.Prepared = func(m *grpc.PreparedMsg) (mem.BufferSlice, bool) {
		b := get[mem.BufferSlice](reflect.ValueOf(m).Elem(), "encodedData")
		return b, b != nil
	}
	c.StreamValue = k.streamValue
}

// streamValue returns t. If the caller is a function of grpc-go that wants grpc-go's own type of
// stream, it returns such a stream instead. These functions use only the names of the compressors, and
// whether the header has been sent.
func (k *Keys) streamValue(t *rpc.TransportStream) any {
	if !wantsOwnStream() {
		return grpc.ServerTransportStream(t)
	}
	stream, compressor, accepts, headerSent := k.newStream()
	*accepts = t.Accepts()
	headerSent.Store(!t.ChooseBy(compressor))
	return stream
}

var grpcPath = server.PkgPath() + "."

// callers yields the functions of grpc-go on the stack without the package's name, the nearest first.
// Any number of others may be in between.
func callers(yield func(name string) bool) {
	var pcs [16]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if n == 0 {
			return
		}
		frames := runtime.CallersFrames(pcs[:n])
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if name, ok := strings.CutPrefix(f.Function, grpcPath); ok && !yield(name) {
				return
			}
		}
	}
}

// wantsOwnStream reports whether a function of grpc-go looks for a stream of its own type in a context.
func wantsOwnStream() bool {
	for name := range callers {
		if name != "ServerTransportStreamFromContext" {
			return name == "SetSendCompressor" || name == "ClientSupportedCompressors"
		}
	}
	return false
}

// Stopping reports whether Stop or GracefulStop of a grpc.Server is on the stack.
func Stopping() (stopping, graceful bool) {
	for name := range callers {
		switch name {
		case "(*Server).GracefulStop":
			return true, true
		case "(*Server).Stop":
			return true, false
		}
	}
	return false, false
}
