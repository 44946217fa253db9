package frameworks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
)

// The messages of the service are protobuf's own types, so that no code is generated.
type (
	text   = wrapperspb.StringValue
	number = wrapperspb.Int64Value
)

// longText is a message that doesn't fit into any buffer of net/http, nor into HTTP/2's initial window.
var longText = strings.Repeat("0123456789abcdef", 1<<14)

// echoUnary sends each message back, and fails if the message says so.
func echoUnary(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
	if req.Msg.Value == "fail" {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("as you like"))
	}
	resp := connect.NewResponse(wrapperspb.String(req.Msg.Value))
	resp.Header().Set("X-Peer-Known", fmt.Sprint(req.Peer().Addr != ""))
	resp.Trailer().Set("X-Trailer", "at the end")
	return resp, nil
}

// wait waits until the caller gives up.
func wait(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// sum adds up the lengths of the messages.
func sum(_ context.Context, stream *connect.ClientStream[text]) (*connect.Response[number], error) {
	total := 0
	for stream.Receive() {
		total += len(stream.Msg().Value)
	}
	return connect.NewResponse(wrapperspb.Int64(int64(total))), stream.Err()
}

// repeat sends each message back three times.
func repeat(_ context.Context, req *connect.Request[text], stream *connect.ServerStream[text]) error {
	for range 3 {
		if err := stream.Send(req.Msg); err != nil {
			return err
		}
	}
	return nil
}

// echoStream sends back each message as it comes.
func echoStream(_ context.Context, stream *connect.BidiStream[text, text]) error {
	for {
		msg, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(msg); err != nil {
			return err
		}
	}
}

const service = "/percore.test.v1.Test/"

func connectHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(service+"Echo", connect.NewUnaryHandler(service+"Echo", echoUnary))
	mux.Handle(service+"Wait", connect.NewUnaryHandler(service+"Wait", wait))
	mux.Handle(service+"Sum", connect.NewClientStreamHandler(service+"Sum", sum))
	mux.Handle(service+"Repeat", connect.NewServerStreamHandler(service+"Repeat", repeat))
	mux.Handle(service+"Stream", connect.NewBidiStreamHandler(service+"Stream", echoStream))
	return mux
}

// TestConnect makes calls of each kind with each protocol over each version of HTTP that supports them.
func TestConnect(t *testing.T) {
	protocols := []struct {
		name    string
		options []connect.ClientOption
		http1   bool // works over HTTP/1.1
	}{
		{"connect", nil, true},
		{"connect,json", []connect.ClientOption{connect.WithProtoJSON()}, true},
		{"grpc-web", []connect.ClientOption{connect.WithGRPCWeb()}, true},
		{"grpc", []connect.ClientOption{connect.WithGRPC(), connect.WithSendGzip()}, false},
	}
	versions := []struct {
		name       string
		http2, tls bool
	}{{"HTTP1", false, false}, {"h2c", true, false}, {"h2", true, true}}
	for _, version := range versions {
		t.Run(version.name, func(t *testing.T) {
			onEachWay(t, func(s *stage) {
				srv, with := &http.Server{Handler: connectHandler(), Protocols: new(http.Protocols)}, setup{http2: version.http2}
				srv.Protocols.SetHTTP1(true)
				srv.Protocols.SetHTTP2(true)
				srv.Protocols.SetUnencryptedHTTP2(true)
				if version.tls {
					with.serverTLS, with.clientTLS = testnet.TLS(s)
					with.http2 = false // the client finds out through ALPN
				}
				st := s.start(srv, with)
				for _, p := range protocols {
					if !version.http2 && !p.http1 {
						continue
					}
					s.note("%s", p.name)
					callAll(st, version.http2, p.options...)
				}
				if st.adapter != nil {
					if got := st.adapter.Stats(); (got.HTTP2 > 0) != version.http2 || (got.Conns > 0) != !version.http2 {
						s.Errorf("got %+v: want connections over HTTP/1 if they don't speak HTTP/2, and only then", got)
					}
				}
			})
		})
	}
}

// callAll makes the calls of one protocol. Over HTTP/1.1 the connection is parked between any two.
func callAll(st *site, http2 bool, options ...connect.ClientOption) {
	s := st.s
	between := func() {
		if !http2 {
			st.awaitParked(0)
		}
	}
	unary := connect.NewClient[text, text](st.client, st.url+service+"Echo", options...)
	for _, msg := range []string{"hello", "", longText} {
		resp, err := unary.CallUnary(s.context(), connect.NewRequest(wrapperspb.String(msg)))
		if err != nil {
			s.Fatalf("Echo: %v", err)
		}
		s.want("an echo", resp.Msg.Value, msg)
		s.note("Echo: %q %q", resp.Header().Get("X-Peer-Known"), resp.Trailer().Get("X-Trailer"))
		between()
	}
	_, err := unary.CallUnary(s.context(), connect.NewRequest(wrapperspb.String("fail")))
	s.expect("failed_precondition: as you like", "%v", err)
	between()

	repeating, err := connect.NewClient[text, text](st.client, st.url+service+"Repeat", options...).CallServerStream(s.context(), connect.NewRequest(wrapperspb.String(longText)))
	if err != nil {
		s.Fatalf("Repeat: %v", err)
	}
	n := 0
	for ; repeating.Receive(); n++ {
		s.want("a repetition", repeating.Msg().Value, longText)
	}
	s.expect("3 repetitions, <nil>, <nil>", "%d repetitions, %v, %v", n, repeating.Err(), repeating.Close())
	between()

	summing := connect.NewClient[text, number](st.client, st.url+service+"Sum", options...).CallClientStream(s.context())
	for range 5 {
		if err := summing.Send(wrapperspb.String(longText)); err != nil {
			s.Fatalf("Sum: %v", err)
		}
	}
	total, err := summing.CloseAndReceive()
	if err != nil {
		s.Fatalf("Sum: %v", err)
	}
	s.expect(fmt.Sprint(5*len(longText)), "%d", total.Msg.Value)
	between()

	if http2 {
		talkBothWays(st, options...)
		giveUp(st, options...)
	}
}

// talkBothWays waits for each message to come back before it sends the next one.
func talkBothWays(st *site, options ...connect.ClientOption) {
	s := st.s
	stream := connect.NewClient[text, text](st.client, st.url+service+"Stream", options...).CallBidiStream(s.context())
	for i := range 10 {
		msg := fmt.Sprintf("%d %s", i, longText[:i*1000])
		if err := stream.Send(wrapperspb.String(msg)); err != nil {
			s.Fatalf("Stream: Send: %v", err)
		}
		got, err := stream.Receive()
		if err != nil {
			s.Fatalf("Stream: Receive: %v", err)
		}
		s.want("what comes back", got.Value, msg)
	}
	closing := stream.CloseRequest()
	_, err := stream.Receive()
	s.expect("<nil> true <nil>", "%v %t %v", closing, errors.Is(err, io.EOF), stream.CloseResponse())
}

// giveUp cancels a call that waits, which does not affect the connection.
func giveUp(st *site, options ...connect.ClientOption) {
	ctx, cancel := context.WithCancel(st.s.context())
	ended := make(chan error, 1)
	waiting := connect.NewClient[text, text](st.client, st.url+service+"Wait", options...)
	go func() {
		_, err := waiting.CallUnary(ctx, connect.NewRequest(wrapperspb.String("")))
		ended <- err
	}()
	cancel()
	st.s.expect("canceled", "%v", connect.CodeOf(testnet.Receive(st.s, "the call ending", ended)))
}
