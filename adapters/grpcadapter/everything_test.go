package grpcadapter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values. TestNilArguments has the sentences that these
// are refused with.
func TestArguments(t *testing.T) {
	testnet.NoLeaks(t)
	srv, wrapped := NewServer(), Wrap(grpc.NewServer())
	defer srv.Stop()
	defer wrapped.Stop()
	client, err := NewClient("passthrough:///127.0.0.1:1", WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	request := httptest.NewRequest(http.MethodPost, "/service/method", nil)
	ended := new(Stream)
	ended.sender.Init((*sending)(ended))
	ended.sender.Finish(false)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"ChainStreamInterceptor":     {Func: ChainStreamInterceptor},
		"ChainUnaryInterceptor":      {Func: ChainUnaryInterceptor},
		"ClientSupportedCompressors": {Func: ClientSupportedCompressors, Says: "a nil context was passed"},
		"ConnectionTimeout":          {Func: ConnectionTimeout},
		"Creds":                      {Func: Creds, Nils: "c"},
		"Detach":                     {Func: Detach, Args: []any{new(countingStream)}},
		"ForceServerCodec":           {Func: ForceServerCodec},
		"ForceServerCodecV2":         {Func: ForceServerCodecV2, Nils: "c"},
		"InTapHandle":                {Func: InTapHandle, Nils: "h"},
		"InitialConnWindowSize":      {Func: InitialConnWindowSize},
		"InitialWindowSize":          {Func: InitialWindowSize},
		"KeepaliveEnforcementPolicy": {Func: KeepaliveEnforcementPolicy},
		"KeepaliveParams":            {Func: KeepaliveParams},
		"LimitWork":                  {Func: LimitWork, Nils: "exempt"},
		"MaxConcurrentStreams":       {Func: MaxConcurrentStreams},
		"MaxHeaderListSize":          {Func: MaxHeaderListSize},
		"MaxRecvMsgSize":             {Func: MaxRecvMsgSize},
		"MaxSendMsgSize":             {Func: MaxSendMsgSize},
		"NewClient": {Func: func(target string, o ...ClientOption) error {
			c, err := NewClient(target, append(o, WithTransportCredentials(insecure.NewCredentials()))...)
			if err == nil {
				c.Close()
			}
			return err
		}},
		"NewServer":                  {Func: func(o ...Option) { NewServer(o...).Stop() }},
		"SetSendCompressor":          {Func: SetSendCompressor, Args: []any{context.Background(), "gzip"}, Says: "a nil context was passed"},
		"StatsHandler":               {Func: StatsHandler, Nils: "h"},
		"UnknownServiceHandler":      {Func: UnknownServiceHandler},
		"WaitForHandlers":            {Func: WaitForHandlers},
		"WithAuthority":              {Func: WithAuthority},
		"WithChainStreamInterceptor": {Func: WithChainStreamInterceptor},
		"WithChainUnaryInterceptor":  {Func: WithChainUnaryInterceptor},
		"WithConnectParams":          {Func: WithConnectParams},
		"WithContextDialer":          {Func: WithContextDialer},
		"WithDefaultCallOptions":     {Func: WithDefaultCallOptions},
		"WithDefaultServiceConfig":   {Func: WithDefaultServiceConfig},
		"WithIdleTimeout":            {Func: WithIdleTimeout},
		"WithInitialConnWindowSize":  {Func: WithInitialConnWindowSize},
		"WithInitialWindowSize":      {Func: WithInitialWindowSize},
		"WithKeepaliveParams":        {Func: WithKeepaliveParams},
		"WithMaxCallAttempts":        {Func: WithMaxCallAttempts},
		"WithMaxHeaderListSize":      {Func: WithMaxHeaderListSize},
		"WithPerRPCCredentials":      {Func: WithPerRPCCredentials},
		"WithResolvers":              {Func: WithResolvers},
		"WithStatsHandler":           {Func: WithStatsHandler, Nils: "h"},
		"WithTransportCredentials":   {Func: WithTransportCredentials, Nils: "c"},
		"WithUserAgent":              {Func: WithUserAgent},
		"Wrap":                       {Func: Wrap, Args: []any{grpc.NewServer()}},

		"Client.Invoke":             {Func: client.Invoke, Args: []any{cancelled, "/service/method", nil, nil}, Nils: "args reply"},
		"Client.NewStream":          {Func: client.NewStream, Args: []any{cancelled, &grpc.StreamDesc{}, "/service/method"}},
		"Client.WaitForStateChange": {Func: client.WaitForStateChange, Args: []any{cancelled}},

		"Server.HandOver":               {Func: srv.HandOver, Nils: "_"},
		"Server.Handler":                {Func: srv.Handler},
		"Server.RegisterOnDrain":        {Func: srv.RegisterOnDrain},
		"Server.RegisterService":        {Func: srv.RegisterService, Args: []any{&grpc.ServiceDesc{}}, Nils: "impl"},
		"Server.Serve":                  {Func: srv.Serve},
		"Server.Shutdown":               {Func: srv.Shutdown},
		"Server.ServeHTTP":              {Func: srv.ServeHTTP, Args: []any{httptest.NewRecorder(), request}},
		"Stream.Abort":                  {Func: ended.Abort, Nils: "err"},
		"Stream.CloseWithError":         {Func: ended.CloseWithError, Nils: "err"},
		"Stream.OnEnd":                  {Func: ended.OnEnd, Nils: "f"},
		"Stream.SendMsg":                {Func: ended.SendMsg, Nils: "m"},
		"Stream.SetLimit":               {Func: ended.SetLimit},
		"WrappedServer.HandOver":        {Func: wrapped.HandOver, Nils: "_"},
		"WrappedServer.Handler":         {Func: wrapped.Handler},
		"WrappedServer.RegisterOnDrain": {Func: wrapped.RegisterOnDrain},
		"WrappedServer.Serve":           {Func: wrapped.Serve},
		"WrappedServer.Shutdown":        {Func: wrapped.Shutdown},
		"WrappedServer.ServeHTTP":       {Func: wrapped.ServeHTTP, Args: []any{httptest.NewRecorder(), request}},
	})
}
