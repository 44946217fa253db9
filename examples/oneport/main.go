// Command oneport serves gRPC, gRPC-Web, Connect, and HTTP/1.1 and HTTP/2 on one port, in clear or over
// TLS. Calls of gRPC go past net/http; gRPC-Web and Connect are translated by
// connectrpc.com/vanguard.
//
//	go run ./oneport
//	grpcurl -plaintext localhost:8080 grpc.health.v1.Health/Check
//	curl localhost:8080/
//	curl --http2-prior-knowledge localhost:8080/
//	curl -H 'Content-Type: application/json' -H 'Connect-Protocol-Version: 1' -d '{}' localhost:8080/grpc.health.v1.Health/Check
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"connectrpc.com/vanguard"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

func main() {
	address := flag.String("addr", "localhost:8080", "address to listen on")
	cert := flag.String("cert", "", "file with the certificate, for TLS")
	key := flag.String("key", "", "file with its key")
	flag.Parse()

	s, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.serve(context.Background(), ln, *cert, *key); err != nil {
		log.Fatal(err)
	}
}

// server is a gRPC server and an http.Server on one port.
type server struct {
	status *health.Server
	grpc   *grpcadapter.Server
	http   *http.Server
	web    *httpadapter.Server
}

func newServer() (*server, error) {
	s := &server{status: health.NewServer(), grpc: grpcadapter.NewServer()}
	healthpb.RegisterHealthServer(s.grpc, s.status)
	reflection.Register(s.grpc)

	translated, err := vanguard.NewTranscoder([]*vanguard.Service{
		vanguard.NewService("grpc.health.v1.Health", s.grpc, vanguard.WithTargetProtocols(vanguard.ProtocolGRPC), vanguard.WithTargetCodecs(vanguard.CodecProto)),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/grpc.health.v1.Health/", translated)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello over %s\n", r.Proto) })

	s.http = &http.Server{
		Handler:           s.grpc.Handler(mux), // gRPC by its content-type; the rest goes to mux
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		Protocols:         new(http.Protocols),
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	s.web = httpadapter.Wrap(s.http)
	return s, nil
}

// serve serves until ctx ends, or SIGINT or SIGTERM comes, and then finishes the running requests and
// calls. Without files and a TLSConfig it serves in clear.
func (s *server) serve(ctx context.Context, ln net.Listener, cert, key string) error {
	part := handover.Part{Name: "web", Listener: ln, Server: s.web}
	if cert != "" || s.http.TLSConfig != nil {
		part.Serve = func(ln net.Listener) error { return s.web.ServeTLS(ln, cert, key) }
	}
	service := handover.Service{
		Parts:   []handover.Part{part},
		Leaving: s.status.Shutdown, // so that load balancers choose another server
	}
	defer s.grpc.Stop() // which ends what is left of calls
	return service.Run(ctx)
}
