package grpcadapter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// This file attacks what would be worst: that a server past grpc-go's transport skips an interceptor, a
// hook, a check of credentials or a limit.

// An optionCase shows what an option of grpc.NewServer does.
type optionCase struct {
	name   string                                                             // of the option
	option func(*testing.T, *callLog) (theirs grpc.ServerOption, ours Option) // nil: NewServer has none

	// observe returns what a client sees of a server with the option; the log has more. It is nil for an
	// option that the fast path refuses.
	observe func(*testing.T, net.Listener) string
	refused string

	// noEffect says why nothing can be seen of the option.
	noEffect string
	never    bool // without the option, what is observed doesn't come
}

var errNoRight = status.Error(codes.PermissionDenied, "no right")

func denyUnary(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	return nil, errNoRight
}

func denyStream(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
	return errNoRight
}

// denying are credentials that refuse everyone.
var denying = handshaking{insecure.NewCredentials(), func(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("no")
}}

func denyTap(_ context.Context, info *tap.Info) (context.Context, error) {
	if strings.HasSuffix(info.FullMethodName, "/Unary") {
		return nil, errors.New("not now")
	}
	return nil, errNoRight
}

func somethingUnknown(any, grpc.ServerStream) error {
	return status.Error(codes.DataLoss, "something unknown")
}

// fixed makes an option that doesn't depend on the test.
func fixed(theirs grpc.ServerOption, ours Option) func(*testing.T, *callLog) (grpc.ServerOption, Option) {
	return func(*testing.T, *callLog) (grpc.ServerOption, Option) { return theirs, ours }
}

// optionCases has all options, some several times. TestOptionsAreAll checks that.
func optionCases() []optionCase {
	return []optionCase{
		{name: "UnaryInterceptor", option: fixed(grpc.UnaryInterceptor(denyUnary), ChainUnaryInterceptor(denyUnary)), observe: observeCalls()},
		{name: "ChainUnaryInterceptor", option: fixed(grpc.ChainUnaryInterceptor(denyUnary), ChainUnaryInterceptor(denyUnary)), observe: observeCalls()},
		{name: "StreamInterceptor", option: fixed(grpc.StreamInterceptor(denyStream), ChainStreamInterceptor(denyStream)), observe: observeCalls()},
		{name: "ChainStreamInterceptor", option: fixed(grpc.ChainStreamInterceptor(denyStream), ChainStreamInterceptor(denyStream)), observe: observeCalls()},
		{
			name: "StatsHandler", observe: observeCalls(),
			option: func(_ *testing.T, log *callLog) (grpc.ServerOption, Option) {
				return grpc.StatsHandler(statsLog{"x", log}), StatsHandler(statsLog{"x", log})
			},
		},
		{
			name: "InTapHandle", observe: observeCalls(),
			option: fixed(grpc.InTapHandle(denyTap), InTapHandle(denyTap)),
		},
		{
			name: "UnknownServiceHandler", observe: observeCalls(),
			option: fixed(grpc.UnknownServiceHandler(somethingUnknown), UnknownServiceHandler(somethingUnknown)),
		},
		{
			name: "Creds", observe: observeCalls(), // by a client without TLS
			option: func(t *testing.T, _ *callLog) (grpc.ServerOption, Option) {
				creds, _ := credentialsOf(t, true)
				return grpc.Creds(creds), Creds(creds)
			},
		},
		{name: "Creds", observe: observeCalls(), option: fixed(grpc.Creds(denying), Creds(denying))},
		{name: "MaxRecvMsgSize", option: fixed(grpc.MaxRecvMsgSize(50), MaxRecvMsgSize(50)), observe: observeCalls()},
		//lint:ignore SA1019 servers use it
		{name: "MaxMsgSize", option: fixed(grpc.MaxMsgSize(50), nil), observe: observeCalls()},
		{name: "MaxSendMsgSize", option: fixed(grpc.MaxSendMsgSize(50), MaxSendMsgSize(50)), observe: observeCalls()},
		{name: "ForceServerCodec", option: fixed(grpc.ForceServerCodec(reversed{}), ForceServerCodec(reversed{})), observe: observeCalls()},
		{name: "ForceServerCodecV2", option: fixed(grpc.ForceServerCodecV2(failingCodec{encoding.GetCodecV2(proto.Name)}),
			ForceServerCodecV2(failingCodec{encoding.GetCodecV2(proto.Name)})), observe: observeCalls()},
		//lint:ignore SA1019 servers use it
		{name: "CustomCodec", option: fixed(grpc.CustomCodec(reversedV0{}), nil), observe: observeCalls()},
		{name: "MaxHeaderListSize", option: fixed(grpc.MaxHeaderListSize(400), MaxHeaderListSize(400)), observe: observeCalls("x", strings.Repeat("y", 1000))},
		{name: "MaxHeaderListSize", option: fixed(grpc.MaxHeaderListSize(400), MaxHeaderListSize(400)), observe: observeSetting(6)},
		{name: "MaxHeaderListSize", option: fixed(grpc.MaxHeaderListSize(0), nil), refused: "the server has the option MaxHeaderListSize(0)"},
		{name: "HeaderTableSize", option: fixed(grpc.HeaderTableSize(100), nil), observe: observeSetting(1)},
		{name: "HeaderTableSize", option: fixed(grpc.HeaderTableSize(0), nil), observe: observeSetting(1)},
		{name: "MaxConcurrentStreams", option: fixed(grpc.MaxConcurrentStreams(1), MaxConcurrentStreams(1)), observe: observeSetting(3)},
		{name: "MaxConcurrentStreams", option: fixed(grpc.MaxConcurrentStreams(1), MaxConcurrentStreams(1)), observe: observeTwoStreams},
		{name: "InitialWindowSize", option: fixed(grpc.InitialWindowSize(300_000), InitialWindowSize(300_000)), observe: observeSetting(4)},
		{name: "StaticStreamWindowSize", option: fixed(grpc.StaticStreamWindowSize(100_000), nil), observe: observeSetting(4)},
		{name: "InitialConnWindowSize", option: fixed(grpc.InitialConnWindowSize(100_000), nil), observe: observeCalls(), noEffect: "see docs/DIFFERENCES.md"},
		{name: "StaticConnWindowSize", option: fixed(grpc.StaticConnWindowSize(100_000), nil), observe: observeCalls(), noEffect: "see docs/DIFFERENCES.md"},
		{
			name: "KeepaliveParams", observe: observeGoaway, never: true,
			option: fixed(grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Millisecond}),
				KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Millisecond})),
		},
		{
			name: "KeepaliveParams", observe: observeGoaway, never: true,
			option: fixed(grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Millisecond}),
				KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Millisecond})),
		},
		{
			name: "KeepaliveEnforcementPolicy", observe: observePings,
			option: fixed(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}),
				KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true})),
		},
		{name: "ConnectionTimeout", option: fixed(grpc.ConnectionTimeout(time.Millisecond), ConnectionTimeout(time.Millisecond)), observe: observeSilence, never: true},
		{
			name: "BufferPool", observe: observeCalls(),
			option: func(_ *testing.T, log *callLog) (grpc.ServerOption, Option) {
				return experimental.BufferPool(&loggingPool{BufferPool: mem.DefaultBufferPool(), log: log}), nil
			},
		},
		{name: "WriteBufferSize", option: fixed(grpc.WriteBufferSize(1), nil), observe: observeCalls(), noEffect: "performance"},
		{name: "ReadBufferSize", option: fixed(grpc.ReadBufferSize(1), nil), observe: observeCalls(), noEffect: "performance"},
		//lint:ignore SA1019 servers use it
		{name: "SharedWriteBuffer", option: fixed(grpc.SharedWriteBuffer(false), nil), observe: observeCalls(), noEffect: "performance"},
		{name: "NumStreamWorkers", option: fixed(grpc.NumStreamWorkers(2), nil), observe: observeCalls(), noEffect: "performance"},
		{name: "WaitForHandlers", option: fixed(grpc.WaitForHandlers(false), nil), observe: observeCalls(), noEffect: "it is the default"},
		{name: "WaitForHandlers", option: fixed(grpc.WaitForHandlers(true), nil), refused: "the server has the option WaitForHandlers"},
		//lint:ignore SA1019 servers use it
		{name: "RPCCompressor", option: fixed(grpc.RPCCompressor(grpc.NewGZIPCompressor()), nil), refused: "the server has the option RPCCompressor"},
		//lint:ignore SA1019 servers use it
		{name: "RPCDecompressor", option: fixed(grpc.RPCDecompressor(grpc.NewGZIPDecompressor()), nil), refused: "the server has the option RPCDecompressor"},
	}
}

// optionsElsewhere are functions of other packages of grpc-go that return options: these are made of
// those above.
var optionsElsewhere = map[string]string{
	"orca.CallMetricsServerOption":    "interceptors",
	"opentelemetry.ServerOption":      "interceptors and a stats handler",
	"xds.ServingModeCallback":         "for an xds.GRPCServer",
	"xds.BootstrapContentsForTesting": "the same",
	"xds.ClientPoolForTesting":        "the same",
}

// TestOptions: a server of each kind with an option behaves as grpc-go's, and not as a server without
// the option; or the fast path refuses it.
func TestOptions(t *testing.T) {
	for i, test := range optionCases() {
		t.Run(fmt.Sprintf("%s/%d", test.name, i), func(t *testing.T) {
			testnet.NoLeaks(t)
			theirs, ours := test.option(t, nil)
			if test.refused != "" {
				err := wrap(grpc.NewServer(theirs), silent).Refusal()
				if fmt.Sprint(err) != test.refused {
					t.Errorf("got the reason %v, want %s", err, test.refused)
				}
				return
			}
			without := ""
			if !test.never {
				without = observeOption(t, test, serverKinds[0], false)
			}
			want := observeOption(t, test, serverKinds[0], true)
			if (want == without) != (test.noEffect != "") {
				t.Errorf("with the option\n%s\nand without it\n%s", want, without)
			}
			for _, kind := range serverKinds[1:] {
				if ours == nil && kind.name == "NewServer" {
					continue
				}
				if got := observeOption(t, test, kind, true); got != want {
					t.Errorf("%s:\n%s\nwant\n%s", kind.name, got, want)
				}
			}
		})
	}
}

// TestWrapHiddenOptions: options that only packages of grpc-go can set, binary logs and xDS filters, are
// refused.
func TestWrapHiddenOptions(t *testing.T) {
	for field, want := range map[string]string{
		"binaryLogger":  "the server has a binary log",
		"streamWrapper": "the server has xDS filters",
	} {
		srv := grpc.NewServer()
		option := reflect.ValueOf(srv).Elem().FieldByName("opts").FieldByName(field)
		option = reflect.NewAt(option.Type(), option.Addr().UnsafePointer()).Elem()
		option.Set(something(option.Type()))
		if err := wrap(srv, silent).Refusal(); fmt.Sprint(err) != want {
			t.Errorf("%s: got the reason %v, want %s", field, err, want)
		}
	}
}

// something returns a value of a type of functions or interfaces that is not nil.
func something(typ reflect.Type) reflect.Value {
	if typ.Kind() == reflect.Func {
		return reflect.MakeFunc(typ, func([]reflect.Value) []reflect.Value { panic("it was called") })
	}
	return reflect.Zero(reflect.StructOf([]reflect.StructField{{Name: "Embedded", Type: typ, Anonymous: true}}))
}

func silent(w *wrapping) { w.logf = func(string, ...any) {} }

// observeOption returns what is seen of a server.
func observeOption(t *testing.T, test optionCase, kind serverKind, with bool) string {
	log := newCallLog()
	var theirs []grpc.ServerOption
	var ours []Option
	if with {
		one, other := test.option(t, log)
		if theirs = append(theirs, one); other != nil {
			ours = append(ours, other)
		}
	}
	lis, srv := testnet.Listen(t, percore.Listen, testnet.TCP4), kind.make(theirs, ours)
	srv.RegisterService(scriptService(log), nil)
	served := goServe(func() error { return srv.Serve(lis) })
	seen := test.observe(t, lis)
	srv.GracefulStop()
	if err := testnet.Receive(t, "Serve returning", served); err != nil {
		t.Errorf("Serve: %v", err)
	}
	for _, id := range []string{"0", "1", "2", "3", "4"} {
		seen += "\n" + strings.Join(log.lines[id], "\n")
	}
	return seen
}

// observeCalls makes a call of each kind, with more metadata.
func observeCalls(more ...string) func(*testing.T, net.Listener) string {
	return func(t *testing.T, lis net.Listener) string {
		cc := dialServer(t, lis)
		defer cc.Close()
		var seen []string
		for i, method := range []string{"Script/Unary", "Script/Upload", "Script/Download", "Script/Both", "None/None"} {
			call := callScript{
				path: "/percore.test." + method, metadata: more, sizes: []int{20, 2000}, cancel: -1,
				handler: []string{"size:2000", "recv", "recv", "send:2000"},
			}
			if i%2 == 0 { // one message
				call.sizes, call.handler = call.sizes[1:], slices.Delete(call.handler, 1, 2)
			}
			if i == 0 {
				call.handler = call.handler[:1]
			}
			result := call.run(t, cc, i, nil)            // which is not cancelled
			if strings.Contains(result, "Unavailable") { // the texts differ in details of the connection
				result = "Unavailable"
			}
			seen = append(seen, result)
		}
		return strings.Join(seen, "\n")
	}
}

// observeSetting returns a value of the server's first SETTINGS.
func observeSetting(id uint16) func(*testing.T, net.Listener) string {
	return func(t *testing.T, lis net.Listener) string {
		nc := testnet.Dial(t, lis)
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
		p := frames.NewPeer(t, nc)
		p.Flush()
		head := make([]byte, 9)
		if _, err := io.ReadFull(nc, head); err != nil || head[3] != frames.Settings {
			t.Fatalf("the first frame: %v, %v", head, err)
		}
		payload := make([]byte, int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(nc, payload); err != nil {
			t.Fatal(err)
		}
		for ; len(payload) >= 6; payload = payload[6:] {
			if binary.BigEndian.Uint16(payload) == id {
				return fmt.Sprint(binary.BigEndian.Uint32(payload[2:]))
			}
		}
		return "none"
	}
}

// observeTwoStreams opens two calls at once that don't end.
func observeTwoStreams(t *testing.T, lis net.Listener) string {
	p := framePeer(t, lis)
	defer p.Conn.Close()
	for _, id := range []uint32{1, 3} {
		p.Headers(id, false, ":method", "POST", ":scheme", "http", ":path", "/percore.test.Script/Both", ":authority", "h",
			"content-type", "application/grpc", "te", "trailers", "script", "recv")
	}
	p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush()
	var lines []string
	for line := ""; !strings.HasPrefix(line, "pong") && line != "end"; {
		if line = p.Next(); strings.HasPrefix(line, "reset") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// observeGoaway waits for the server to send the client away.
func observeGoaway(t *testing.T, lis net.Listener) string {
	p := framePeer(t, lis).Flush()
	defer p.Conn.Close()
	for {
		switch line := p.Next(); {
		case strings.HasPrefix(line, "goaway"):
			return strings.Fields(line)[2] // the code
		case line == "end", strings.HasPrefix(line, "error"):
			return line
		}
	}
}

// observePings sends more PINGs than are allowed without the option.
func observePings(t *testing.T, lis net.Listener) string {
	p := framePeer(t, lis)
	defer p.Conn.Close()
	const pings = 10
	for pongs := 0; pongs < pings; {
		p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush()
		line := ""
		for line = p.Next(); strings.HasPrefix(line, "settings") || strings.HasPrefix(line, "window"); line = p.Next() {
		}
		if !strings.HasPrefix(line, "pong") {
			return line
		}
		pongs++
	}
	return "all PINGs were answered"
}

// observeSilence connects, and says nothing.
func observeSilence(t *testing.T, lis net.Listener) string {
	nc := testnet.Dial(t, lis)
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	for b := make([]byte, 100); ; {
		if _, err := nc.Read(b); err != nil {
			return fmt.Sprint(errors.Is(err, io.EOF))
		}
	}
}

// failingCodec is a codec that can't unmarshal.
type failingCodec struct{ encoding.CodecV2 }

func (failingCodec) Unmarshal(mem.BufferSlice, any) error { return errors.New("unreadable") }

// reversedV0 is reversed, of the oldest kind.
type reversedV0 struct{ reversed }

func (reversedV0) String() string { return "reversed" }

// loggingPool logs its first use as if it were an event of the first call.
type loggingPool struct {
	mem.BufferPool
	log  *callLog
	used atomic.Bool
}

func (p *loggingPool) Get(n int) *[]byte {
	if !p.used.Swap(true) {
		p.log.add(metadata.NewIncomingContext(context.Background(), metadata.Pairs("id", "0")), "the pool is used")
	}
	return p.BufferPool.Get(n)
}

// TestOptionsAreAll: each option of grpc-go is in optionCases, so that one that is new does not go
// untested.
func TestOptionsAreAll(t *testing.T) {
	known := map[string]bool{}
	for _, test := range optionCases() {
		known[test.name] = true
	}
	for _, name := range functions(t, grpcDir(t), "ServerOption") {
		short, own := strings.CutPrefix(name, "grpc.")
		if own && known[short] || known[strings.TrimPrefix(name, "experimental.")] {
			continue
		}
		if optionsElsewhere[name] == "" {
			t.Errorf("the option %s is not in optionCases", name)
		}
	}
}

// functions returns the exported functions below dir that return a value, or a slice, of a type with one
// of these names, as package.Name.
func functions(t *testing.T, dir string, types ...string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "internal" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.IsExported() && returns(f, types) {
				names = append(names, file.Name.Name+"."+f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// returns reports whether a function returns a value, or a slice, of one of these types.
func returns(f *ast.FuncDecl, types []string) bool {
	if f.Type.Results == nil {
		return false
	}
	for _, result := range f.Type.Results.List {
		typ := result.Type
		if list, ok := typ.(*ast.ArrayType); ok {
			typ = list.Elt
		}
		if of, ok := typ.(*ast.SelectorExpr); ok {
			typ = of.Sel
		}
		if name, ok := typ.(*ast.Ident); ok && slices.Contains(types, name.Name) {
			return true
		}
	}
	return false
}

// grpcDir returns the directory of grpc-go's source.
func grpcDir(t *testing.T) string {
	return testnet.GoCommand(t, nil, "list", "-m", "-f", "{{.Dir}}", "google.golang.org/grpc")
}
