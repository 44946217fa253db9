package grpcadapter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values. TestNilArguments has the sentences that these
// are refused with.
func TestArguments(t *testing.T) {
	testnet.NoLeaks(t)
	srv, wrapped := NewServer(), Wrap(grpc.NewServer())
	defer srv.Stop()
	defer wrapped.Stop()
	request := httptest.NewRequest(http.MethodPost, "/service/method", nil)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"ChainStreamInterceptor":     {Func: ChainStreamInterceptor},
		"ChainUnaryInterceptor":      {Func: ChainUnaryInterceptor},
		"ClientSupportedCompressors": {Func: ClientSupportedCompressors, Says: "a nil context was passed"},
		"ConnectionTimeout":          {Func: ConnectionTimeout},
		"Credentials":                {Func: Credentials},
		"Creds":                      {Func: Creds, Nils: "c"},
		"DialOptions":                {Func: DialOptions},
		"ForceServerCodec":           {Func: ForceServerCodec},
		"ForceServerCodecV2":         {Func: ForceServerCodecV2, Nils: "c"},
		"HeaderTableSize":            {Func: HeaderTableSize},
		"InTapHandle":                {Func: InTapHandle, Nils: "h"},
		"InitialConnWindowSize":      {Func: InitialConnWindowSize},
		"InitialWindowSize":          {Func: InitialWindowSize},
		"KeepaliveEnforcementPolicy": {Func: KeepaliveEnforcementPolicy},
		"KeepaliveParams":            {Func: KeepaliveParams},
		"MaxConcurrentStreams":       {Func: MaxConcurrentStreams},
		"MaxHeaderListSize":          {Func: MaxHeaderListSize},
		"MaxRecvMsgSize":             {Func: MaxRecvMsgSize},
		"MaxSendMsgSize":             {Func: MaxSendMsgSize},
		"NewServer":                  {Func: func(o ...Option) { NewServer(o...).Stop() }},
		"Serve":                      {Func: Serve, Args: []any{grpc.NewServer()}},
		"SetSendCompressor":          {Func: SetSendCompressor, Args: []any{context.Background(), "gzip"}, Says: "a nil context was passed"},
		"StatsHandler":               {Func: StatsHandler, Nils: "h"},
		"StreamInterceptor":          {Func: StreamInterceptor, Nils: "i"},
		"UnaryInterceptor":           {Func: UnaryInterceptor, Nils: "i"},
		"UnknownServiceHandler":      {Func: UnknownServiceHandler},
		"WaitForHandlers":            {Func: WaitForHandlers},
		"WithDialer":                 {Func: WithDialer},
		"WithKeepaliveParams":        {Func: WithKeepaliveParams},
		"Wrap":                       {Func: Wrap, Args: []any{grpc.NewServer()}},

		"Conn.ReadOnReady":        {Func: new(Conn).ReadOnReady},
		"Server.HandOver":         {Func: srv.HandOver, Nils: "_"},
		"Server.Handler":          {Func: srv.Handler},
		"Server.RegisterService":  {Func: srv.RegisterService, Args: []any{&grpc.ServiceDesc{}}, Nils: "impl"},
		"Server.Serve":            {Func: srv.Serve},
		"Server.Shutdown":         {Func: srv.Shutdown},
		"Server.ServeHTTP":        {Func: srv.ServeHTTP, Args: []any{httptest.NewRecorder(), request}},
		"WrappedServer.HandOver":  {Func: wrapped.HandOver, Nils: "_"},
		"WrappedServer.Handler":   {Func: wrapped.Handler},
		"WrappedServer.Serve":     {Func: wrapped.Serve},
		"WrappedServer.Shutdown":  {Func: wrapped.Shutdown},
		"WrappedServer.ServeHTTP": {Func: wrapped.ServeHTTP, Args: []any{httptest.NewRecorder(), request}},
	})
}
