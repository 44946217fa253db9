package grpcadapter_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
)

// watchers is a health service whose watches hold no goroutine while they wait.
type watchers struct {
	healthpb.UnimplementedHealthServer

	mu  sync.Mutex
	now healthpb.HealthCheckResponse_ServingStatus
	all map[*grpcadapter.Answer]bool
}

// Watch returns at once. The call goes on.
func (w *watchers) Watch(_ *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	return grpcadapter.Detach(stream, func(s *grpcadapter.Answer) {
		s.OnEnd(func(error) { // not before this function has returned
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.all, s)
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all[s] = true
		s.SendMsg(&healthpb.HealthCheckResponse{Status: w.now})
	})
}

// set tells all watchers of a change.
func (w *watchers) set(now healthpb.HealthCheckResponse_ServingStatus) {
	message := &healthpb.HealthCheckResponse{Status: now} // for all of them
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
	for s := range w.all {
		s.SendMsg(message) // fails if the client is too slow, or has gone
	}
}

// close sends the watchers elsewhere.
func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.all {
		s.CloseWithError(status.Error(codes.Unavailable, "the server is about to stop"))
	}
}

// A health service whose watches hold neither a goroutine nor a buffer.
func ExampleDetach() {
	w := &watchers{now: healthpb.HealthCheckResponse_SERVING, all: make(map[*grpcadapter.Answer]bool)}
	srv := grpcadapter.NewServer()
	healthpb.RegisterHealthServer(srv, w)
	srv.RegisterOnDrain(w.close)
	lis, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go srv.Serve(lis)

	cc, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer cc.Close()
	watch, err := healthpb.NewHealthClient(cc).Watch(context.Background(), new(healthpb.HealthCheckRequest))
	if err != nil {
		log.Fatal(err)
	}
	reply, err := watch.Recv()
	fmt.Println(reply.GetStatus(), err)
	w.set(healthpb.HealthCheckResponse_NOT_SERVING)
	reply, err = watch.Recv()
	fmt.Println(reply.GetStatus(), err)
	go srv.GracefulStop()
	_, err = watch.Recv()
	fmt.Println(status.Code(err))
	srv.Stop()
	// Output:
	// SERVING <nil>
	// NOT_SERVING <nil>
	// Unavailable
}
