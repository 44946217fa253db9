package grpcadapter

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestOddArguments: what can't be meant fails in the call that gets it, with a sentence that names it.
// TestArguments has the arguments that are nil.
func TestOddArguments(t *testing.T) {
	testnet.NoLeaks(t)
	unused := newOnceListener()
	for _, test := range []struct {
		call string
		do   func() error // returns an error, or panics
		want string
	}{
		{"NewServer", func() error { NewServer(WaitForHandlers(true), nil); return nil }, "argument 2 of NewServer's options is nil: leave it out"},
		{"Server.Serve of a failed Listen", func() error { return NewServer().Serve((*percore.Listener)(nil)) }, "a nil net.Listener"},
		{"Serve of a zero Server", func() error { return new(Server).Serve(unused) }, "a Server that NewServer has not made"},
		{"Serve of a nil Server", func() error { return (*Server)(nil).Serve(unused) }, "a Server that NewServer has not made"},
		{"RegisterService of a zero Server", func() error { new(Server).RegisterService(&echo, nil); return nil }, "a Server that NewServer has not made"},
		{"RegisterOnDrain of a zero Server", func() error { new(Server).RegisterOnDrain(func() {}); return nil }, "a Server that NewServer has not made"},
		{"Answer.SetLimit", func() error { new(Answer).SetLimit(-1, true); return nil }, "a negative number"},
		{"Wrap's option", func() error { Wrap(grpc.NewServer(), nil); return nil }, "argument 1 of Wrap's options is nil"},
		{"an option of grpc-go's", func() error { Wrap(grpc.NewServer(), DetachInterceptors(), MaxRecvMsgSize(1)); return nil }, "option 2 of Wrap is one of grpc-go's"},
		{"Serve of a zero WrappedServer", func() error { return new(WrappedServer).Serve(unused) }, "a WrappedServer that Wrap has not made"},
	} {
		if got := failure(test.do); !strings.HasPrefix(got, "grpcadapter: ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got the failure %q, want one with %q", test.call, got, test.want)
		}
	}
	// These are grpc-go's ways to ask for nothing, and zero values are its defaults.
	NewServer(StatsHandler(nil), InTapHandle(nil), Creds(nil), ForceServerCodecV2(nil),
		MaxConcurrentStreams(0), InitialWindowSize(0), InitialConnWindowSize(0), KeepaliveParams(keepalive.ServerParameters{})).Stop()
}

// failure returns the text of the error or the panic of f.
func failure(f func() error) (text string) {
	defer func() {
		if reason := recover(); reason != nil {
			text = fmt.Sprint(reason)
		}
	}()
	return fmt.Sprint(f())
}

// TestArguments calls everything with nil and zero values.
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
	ended := new(Answer)
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
		"Answer.Abort":                  {Func: ended.Abort, Nils: "err"},
		"Answer.CloseWithError":         {Func: ended.CloseWithError, Nils: "err"},
		"Answer.OnEnd":                  {Func: ended.OnEnd, Nils: "f"},
		"Answer.SendMsg":                {Func: ended.SendMsg, Nils: "m"},
		"Answer.SetLimit":               {Func: ended.SetLimit},
		"WrappedServer.HandOver":        {Func: wrapped.HandOver, Nils: "_"},
		"WrappedServer.Handler":         {Func: wrapped.Handler},
		"WrappedServer.RegisterOnDrain": {Func: wrapped.RegisterOnDrain},
		"WrappedServer.Serve":           {Func: wrapped.Serve},
		"WrappedServer.Shutdown":        {Func: wrapped.Shutdown},
		"WrappedServer.ServeHTTP":       {Func: wrapped.ServeHTTP, Args: []any{httptest.NewRecorder(), request}},
	})
}
