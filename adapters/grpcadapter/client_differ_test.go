package grpcadapter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/percore/percore/internal/testnet"
)

// The tests of this file make the same random calls with a grpc.ClientConn and with a Client, to the
// same kinds of servers, and compare everything that can be seen: what each call of the client returns,
// the order of its interceptors and stats events, and what the server has got.

// differingClient is what the clients have that are compared.
type differingClient interface {
	grpc.ClientConnInterface
	Close() error
}

// differingClients are the kinds of clients. The first is right.
var differingClients = []struct {
	name string
	make func(addr string, creds credentials.TransportCredentials, log *callLog) (differingClient, error)
}{
	{"grpc-go", func(addr string, creds credentials.TransportCredentials, log *callLog) (differingClient, error) {
		options := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithUserAgent("differ/1")}
		if log != nil {
			options = append(options, grpc.WithChainUnaryInterceptor(unaryClientLog("u2", log), unaryClientLog("u3", log)),
				grpc.WithUnaryInterceptor(unaryClientLog("u1", log)), grpc.WithStatsHandler(statsLog{"x", log}),
				grpc.WithChainStreamInterceptor(streamClientLog("s2", log)), grpc.WithStreamInterceptor(streamClientLog("s1", log)),
				grpc.WithStatsHandler(statsLog{"y", log}))
		}
		return grpc.NewClient("passthrough:///"+addr, options...)
	}},
	{"NewClient", func(addr string, creds credentials.TransportCredentials, log *callLog) (differingClient, error) {
		return newDifferingClient(addr, creds, log)
	}},
	{"ClientConn", func(addr string, creds credentials.TransportCredentials, log *callLog) (differingClient, error) {
		c, err := newDifferingClient(addr, creds, log)
		if err != nil {
			return nil, err
		}
		return c.ClientConn(), nil
	}},
}

func newDifferingClient(addr string, creds credentials.TransportCredentials, log *callLog) (*Client, error) {
	options := []ClientOption{WithTransportCredentials(creds), WithUserAgent("differ/1")}
	if log != nil {
		options = append(options,
			WithChainUnaryInterceptor(unaryClientLog("u1", log), unaryClientLog("u2", log), unaryClientLog("u3", log)),
			WithStatsHandler(statsLog{"x", log}),
			WithChainStreamInterceptor(streamClientLog("s1", log)), WithChainStreamInterceptor(streamClientLog("s2", log)),
			WithStatsHandler(statsLog{"y", log}))
	}
	return NewClient("passthrough:///"+addr, options...)
}

func unaryClientLog(name string, log *callLog) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		log.add(ctx, "%s: %s %T %T %v, %d options", name, method, req, reply, strings.HasPrefix(cc.Target(), "passthrough:"), len(opts))
		err := invoke(context.WithValue(ctx, statsKey(name), true), method, req, reply, cc, opts...)
		log.add(ctx, "%s: %s", name, statusText(err))
		return err
	}
}

func streamClientLog(name string, log *callLog) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		log.add(ctx, "%s: %s %v %v %v", name, method, desc.ClientStreams, desc.ServerStreams, strings.HasPrefix(cc.Target(), "passthrough:"))
		s, err := streamer(ctx, desc, cc, method, opts...)
		log.add(ctx, "%s: %v %s", name, s != nil, statusText(err))
		return s, err
	}
}

// onlyAnswer takes a second answer out of calls that must have one: grpc-go does not finish such a call,
// and a Client does.
func onlyAnswer(s callScript) callScript {
	if s.kind&1 == 0 {
		s.sizes = s.sizes[:min(len(s.sizes), 1)]
	}
	s.stub = true
	sent := false
	s.handler = slices.DeleteFunc(s.handler, func(word string) bool {
		again := s.kind&2 == 0 && sent && strings.HasPrefix(word, "send:")
		sent = sent || strings.HasPrefix(word, "send:")
		return again
	})
	return s
}

// TestClientDiffers makes random calls. Run with -count for more of them: each run has another seed.
func TestClientDiffers(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %v, watched %v", secure, watched), func(t *testing.T) {
				testnet.NoLeaks(t)
				seed := rand.Uint64()
				calls := randomCalls(seed, 60)
				for i := range calls {
					calls[i] = onlyAnswer(calls[i])
				}
				for _, kind := range serverKinds[:2] {
					compareClients(t, fmt.Sprintf("%s, seed %d", kind.name, seed), calls, secure, watched, kind)
				}
			})
		}
	}
}

// sorted returns the log with the events of stats handlers in another order: grpc-go reports a header
// and trailers when they come, which may be before or behind the messages. How many messages were sent
// before a server has answered is left out: that is chance. So is the end of a call, which grpc-go
// reports without its error if SendMsg has noticed it first: many requests, or a method that there
// isn't. The interceptors' lines stay.
func (l *callLog) sorted() *callLog {
	to := newCallLog()
	for id, lines := range l.copied().lines {
		isEvent := func(line string) bool { return strings.Contains(line, ": *stats.") }
		events := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			one := strings.Contains(line, "/Script/Unary") || strings.Contains(line, "/Script/Download")
			return !isEvent(line) || strings.Contains(line, ": *stats.OutPayload ") || !one && strings.Contains(line, ": *stats.End ")
		})
		slices.Sort(events)
		to.lines[id] = append(slices.DeleteFunc(slices.Clone(lines), isEvent), events...)
	}
	return to
}

// compareClients makes the calls with clients of each kind.
func compareClients(t *testing.T, name string, calls []callScript, secure, watched bool, server serverKind) {
	serverCreds, clientCreds := credentialsOf(t, secure)
	var wantLog, wantOwn *callLog
	var want []string
	for i, kind := range differingClients {
		log, own := newCallLog(), newCallLog()
		log.own = server.name == "NewServer"
		srv := server.make([]grpc.ServerOption{grpc.Creds(serverCreds)}, []Option{Creds(serverCreds)})
		got := playCalls(t, server.listen, srv, log, calls, func(lis net.Listener) differingClient {
			of := own
			if !watched {
				of = nil
			}
			cc, err := kind.make(lis.Addr().String(), clientCreds, of)
			if err != nil {
				t.Fatal(err)
			}
			return cc
		})
		if i == 0 {
			want, wantLog, wantOwn = got, log, own
			continue
		}
		compareLogs(t, name, calls, got, want, log, wantLog)
		if !t.Failed() {
			compareLogs(t, name+", the client's log", calls, got, want, own.sorted(), wantOwn.sorted())
		}
	}
}
