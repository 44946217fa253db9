//go:build !percore_net

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore/cmd/percore/internal/echopb"
	"github.com/percore/percore/internal/testnet"
)

// TestServeRestartsGRPC: clients of gRPC that are never silent lose no call to restarts, and none is
// served twice: grpc-go's client makes a call again only if it was not sent, or if GOAWAY says that it
// was not served. Streams that are open end in the process where they began.
func TestServeRestartsGRPC(t *testing.T) {
	clients, restarts := 10, 3
	if testing.Short() {
		clients, restarts = 5, 2
	}
	g := startGenerations(t, "-drain", "1h")                                        // streams that are open end when the test wants it
	ctx, cancel := context.WithTimeout(context.Background(), 5*testnet.HangTimeout) // for the whole test
	defer cancel()
	var stop atomic.Bool
	var made atomic.Int64
	var all sync.WaitGroup
	var services []echopb.EchoClient
	for i := range clients {
		cc, err := grpc.NewClient("passthrough:///"+g.grpcAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		service := echopb.NewEchoClient(cc)
		services = append(services, service)
		for j := range 2 { // calls of a connection
			all.Go(func() {
				for n := 0; !stop.Load(); n++ {
					text := strings.Repeat(fmt.Sprintf("client %d, %d, call %d ", i, j, n), 20)
					answer, err := service.Unary(ctx, &echopb.EchoRequest{Message: text})
					if err != nil || answer.GetMessage() != text {
						t.Errorf("client %d, call %d: got %d bytes, %v", i, n, len(answer.GetMessage()), err)
						return
					}
					made.Add(1)
					time.Sleep(rand.N(10 * time.Millisecond))
				}
			})
		}
	}
	var streams []grpc.BidiStreamingClient[echopb.EchoRequest, echopb.EchoResponse]
	for i := range restarts {
		before := made.Load()
		testnet.Eventually(t, "calls", func() bool { return made.Load() > before+int64(4*clients) || t.Failed() })
		stream, err := services[i%clients].BidiStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
		if err := talk(stream); err != nil { // so that the process knows it
			t.Fatal(err)
		}
		g.restart()
		for j, stream := range streams {
			if err := talk(stream); err != nil {
				t.Errorf("a stream that began before %d restarts: %v", len(streams)-j, err)
			}
		}
	}
	before := made.Load()
	testnet.Eventually(t, "calls to the last process", func() bool { return made.Load() > before+int64(4*clients) || t.Failed() })
	for _, stream := range streams {
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); err != io.EOF {
			t.Errorf("the end of a stream: got %v, want EOF", err)
		}
	}
	stop.Store(true)
	all.Wait()
	g.stop()
	if got, want := g.calls(), int(made.Load())+len(streams); got != want {
		t.Errorf("the processes have had %d calls, and the clients made %d:\n%s", got, want, g.output)
	}
	for _, bad := range []string{"failed", "panic", "cut off"} {
		if g.count(bad) > 0 {
			t.Errorf("the processes say %q:\n%s", bad, g.output)
		}
	}
}

// calls returns how many calls the processes have had.
func (g *generations) calls() (sum int) {
	for _, m := range regexp.MustCompile(`requests +\d+ \(\d+ HTTP, (\d+) gRPC`).FindAllStringSubmatch(g.output.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		sum += n
	}
	return sum
}

// talk sends a message on a stream, and fails unless it comes back.
func talk(stream grpc.BidiStreamingClient[echopb.EchoRequest, echopb.EchoResponse]) error {
	if err := stream.Send(&echopb.EchoRequest{Message: "hello"}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && answer.GetMessage() != "hello" {
		err = errors.New("got another message")
	}
	return err
}
