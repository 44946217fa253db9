package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// noContext is nil, in a way that linters don't see.
var noContext context.Context

// TestNilArguments: what can't be meant fails in the call that gets it, with a sentence that names it.
func TestNilArguments(t *testing.T) {
	testnet.NoLeaks(t)
	unused := newOnceListener()
	for _, test := range []struct {
		call string
		do   func() error // returns an error, or panics
		want string
	}{
		{"NewServer", func() error { NewServer(WaitForHandlers(true), nil); return nil }, "argument 2 of NewServer's options is nil: leave it out"},
		{"Server.Serve", func() error { return NewServer().Serve(nil) }, "a nil net.Listener"},
		{"Server.Serve of a failed Listen", func() error { return NewServer().Serve((*percore.Listener)(nil)) }, "a nil net.Listener"},
		{"Serve of a zero Server", func() error { return new(Server).Serve(unused) }, "a Server that NewServer has not made"},
		{"Serve of a nil Server", func() error { return (*Server)(nil).Serve(unused) }, "a Server that NewServer has not made"},
		{"Server.RegisterService", func() error { NewServer().RegisterService(nil, nil); return nil }, "a nil *grpc.ServiceDesc"},
		{"RegisterService of a zero Server", func() error { new(Server).RegisterService(&echo, nil); return nil }, "a Server that NewServer has not made"},
		{"RegisterOnDrain", func() error { NewServer().RegisterOnDrain(nil); return nil }, "a nil function"},
		{"RegisterOnDrain of a zero Server", func() error { new(Server).RegisterOnDrain(func() {}); return nil }, "a Server that NewServer has not made"},
		{"Detach", func() error { return statusMessage(Detach(nil, func(*Stream) {})) }, "a nil grpc.ServerStream or function"},
		{"Detach without a function", func() error { return statusMessage(Detach(new(countingStream), nil)) }, "a nil grpc.ServerStream or function"},
		{"Stream.SetLimit", func() error { new(Stream).SetLimit(-1, true); return nil }, "a negative number"},
		{"Server.Handler", func() error { NewServer().Handler(nil); return nil }, "a nil http.Handler"},
		{"Wrap", func() error { Wrap(nil); return nil }, "a nil *grpc.Server"},
		{"Wrap's option", func() error { Wrap(grpc.NewServer(), nil); return nil }, "argument 1 of Wrap's options is nil"},
		{"an option of grpc-go's", func() error { Wrap(grpc.NewServer(), DetachInterceptors(), MaxRecvMsgSize(1)); return nil }, "option 2 of Wrap is one of grpc-go's"},
		{"WrappedServer.Serve", func() error { return Wrap(grpc.NewServer()).Serve(nil) }, "a nil net.Listener"},
		{"Serve of a zero WrappedServer", func() error { return new(WrappedServer).Serve(unused) }, "a WrappedServer that Wrap has not made"},
		{"WrappedServer.Handler", func() error { Wrap(grpc.NewServer()).Handler(nil); return nil }, "a nil http.Handler"},
		{"WithContextDialer", func() error { WithContextDialer(nil); return nil }, "a nil function"},
		{"LimitWork", func() error { LimitWork(nil, nil); return nil }, "a nil *admission.Limiter"},
		{"ChainUnaryInterceptor", func() error { ChainUnaryInterceptor(nil); return nil }, "argument 1 of ChainUnaryInterceptor is nil"},
		{"ChainStreamInterceptor", func() error { ChainStreamInterceptor(nil); return nil }, "argument 1 of ChainStreamInterceptor is nil"},
		{"ForceServerCodec", func() error { ForceServerCodec(nil); return nil }, "a nil encoding.Codec"},
		{"UnknownServiceHandler", func() error { UnknownServiceHandler(nil); return nil }, "a nil grpc.StreamHandler"},
		{"SetSendCompressor", func() error { return SetSendCompressor(noContext, "gzip") }, "a nil context"},
		{"ClientSupportedCompressors", func() error { _, err := ClientSupportedCompressors(noContext); return err }, "a nil context"},
	} {
		if got := failure(test.do); !strings.HasPrefix(got, "grpcadapter: ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got the failure %q, want one with %q", test.call, got, test.want)
		}
	}
	// These are grpc-go's ways to ask for nothing, and zero values are its defaults.
	NewServer(StatsHandler(nil), InTapHandle(nil), Creds(nil), ForceServerCodecV2(nil),
		MaxConcurrentStreams(0), InitialWindowSize(0), InitialConnWindowSize(0), KeepaliveParams(keepalive.ServerParameters{})).Stop()
}

// statusMessage returns a status's text as an error.
func statusMessage(err error) error { return errors.New(status.Convert(err).Message()) }

// failure returns the text of the error or the panic of f.
func failure(f func() error) (text string) {
	defer func() {
		if reason := recover(); reason != nil {
			text = fmt.Sprint(reason)
		}
	}()
	return fmt.Sprint(f())
}

// TestWrapBypassed: a line in the log says that the grpc.Server's own Serve was called instead of the
// WrappedServer's, once.
func TestWrapBypassed(t *testing.T) {
	for _, test := range []struct {
		name  string
		serve func(*grpc.Server, *WrappedServer, net.Listener) error
		late  time.Duration // between Wrap and Serve
		lines int
	}{
		{name: "at once", serve: func(srv *grpc.Server, _ *WrappedServer, lis net.Listener) error { return srv.Serve(lis) }, lines: 1},
		{name: "later", serve: func(srv *grpc.Server, _ *WrappedServer, lis net.Listener) error { return srv.Serve(lis) }, late: 20 * time.Second, lines: 1},
		{name: "the right one", serve: func(_ *grpc.Server, w *WrappedServer, lis net.Listener) error { return w.Serve(lis) }},
		{name: "both", serve: func(srv *grpc.Server, w *WrappedServer, lis net.Listener) error {
			w.used.Store(true)
			return srv.Serve(lis)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var lines []string
			srv := grpc.NewServer()
			w := wrap(srv, func(w *wrapping) {
				w.logf = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
			})
			time.Sleep(test.late)
			lis := newOnceListener()
			served := make(chan error, 1)
			go func() { served <- test.serve(srv, w, lis) }()
			time.Sleep(2 * bypassCheckLast)
			synctest.Wait()
			if len(lines) != test.lines || test.lines > 0 && !strings.Contains(lines[0], "Call Serve of what it has returned") {
				t.Errorf("%s: got the lines %q, want %d", test.name, lines, test.lines)
			}
			srv.Stop()
			if err := <-served; err != nil {
				t.Errorf("%s: Serve: %v", test.name, err)
			}
		})
	}
}
