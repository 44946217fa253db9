package grpcadapter

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // for grpc-go's client
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/percore/percore/internal/testnet"
)

// patient is a server's health. Each word is a status, or a code that Watch fails with.
type patient struct {
	healthpb.UnimplementedHealthServer

	mu      sync.Mutex
	word    string
	changed chan struct{}
	asked   []string // for which service, and when
}

func (p *patient) set(word string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word = word
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *patient) Watch(r *healthpb.HealthCheckRequest, s grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	p.mu.Lock()
	p.asked = append(p.asked, r.Service)
	p.mu.Unlock()
	for {
		p.mu.Lock()
		word, changed := p.word, p.changed
		p.mu.Unlock()
		var code codes.Code
		if code.UnmarshalJSON([]byte(`"`+word+`"`)) == nil {
			return status.Error(code, "it is "+word)
		}
		if err := s.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_ServingStatus(healthpb.HealthCheckResponse_ServingStatus_value[word])}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

type dialFunc = func(context.Context, string) (net.Conn, error)

// healthClient is what the clients have that are compared.
type healthClient interface {
	differingClient
	Connect()
	GetState() connectivity.State
	WaitForStateChange(context.Context, connectivity.State) bool
}

// TestClientHealth plays what happens to a server's health to a grpc.ClientConn and a Client, which must
// have the same states, and calls that end the same.
func TestClientHealth(t *testing.T) {
	const config = `{"loadBalancingConfig":[{"%s":{}}],"healthCheckConfig":{"serviceName":"a.Service"}}`
	for name, test := range map[string]struct {
		policy, script, want string
		disabled             bool
	}{
		"statuses":        {"round_robin", "SERVING NOT_SERVING SERVICE_UNKNOWN SERVING UNKNOWN", "status=NOT_SERVING", false},
		"ill at first":    {"round_robin", "NOT_SERVING sleep SERVING", "READY", false},
		"errors":          {"round_robin", "SERVING INTERNAL sleep SERVING rest OK rest NOT_SERVING rest", "it is INTERNAL", false},
		"errors at first": {"round_robin", "UNAVAILABLE sleep sleep SERVING rest", "it is UNAVAILABLE", false},
		"unimplemented":   {"round_robin", "UNIMPLEMENTED NOT_SERVING sleep", "READY", false},
		"later":           {"round_robin", "SERVING UNIMPLEMENTED NOT_SERVING sleep", "READY", false},
		"another end":     {"round_robin", "NOT_SERVING cut SERVING cut NOT_SERVING", "status=NOT_SERVING", false},
		"pick_first":      {"pick_first", "NOT_SERVING SERVING", "READY", false},
		"disabled":        {"round_robin", "NOT_SERVING SERVING", "READY", true},
	} {
		t.Run(name, func(t *testing.T) {
			js := fmt.Sprintf(config, test.policy)
			want := playHealth(t, test.script, func(dial dialFunc) (healthClient, error) {
				options := []grpc.DialOption{grpc.WithContextDialer(dial), grpc.WithDefaultServiceConfig(js),
					grpc.WithTransportCredentials(insecure.NewCredentials())}
				if test.disabled {
					options = append(options, grpc.WithDisableHealthCheck())
				}
				return grpc.NewClient("passthrough:///server", options...)
			})
			got := playHealth(t, test.script, func(dial dialFunc) (healthClient, error) {
				options := []ClientOption{WithContextDialer(dial), WithDefaultServiceConfig(js), WithTransportCredentials(insecure.NewCredentials())}
				if test.disabled {
					options = append(options, WithDisableHealthCheck())
				}
				return NewClient("passthrough:///server", options...)
			})
			if got != want || !strings.Contains(want, test.want) {
				t.Errorf("got\n%s\nwant grpc-go's\n%s\nwith %q", got, want, test.want)
			}
		})
	}
}

// playHealth plays a script, and returns what could be seen.
func playHealth(t *testing.T, script string, makeClient func(dialFunc) (healthClient, error)) (log string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(64 << 10)
		words := strings.Fields(script)
		p := &patient{word: words[0], changed: make(chan struct{})}
		srv := grpc.NewServer()
		srv.RegisterService(&echo, nil)
		healthpb.RegisterHealthServer(srv, p)
		go func() { _ = srv.Serve(lis) }()
		var latest net.Conn // used by one goroutine at a time
		cc, err := makeClient(func(ctx context.Context, _ string) (nc net.Conn, err error) {
			latest, err = lis.DialContext(ctx)
			return latest, err
		})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		cc.Connect()
		for i, word := range words {
			switch {
			case i == 0:
			case word == "sleep":
				time.Sleep(3 * time.Second) // two pauses: the third ends before the second sleep, with any jitter
			case word == "rest":
				time.Sleep(4 * time.Minute) // longer than any pause
			case word == "cut":
				latest.Close()
			default:
				p.set(word)
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
			err := callUnary(ctx, cc, []byte("x"))
			cancel()
			lines = append(lines, fmt.Sprintf("%s: %v; %v", word, cc.GetState(), err))
		}
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
		srv.Stop()
		log = fmt.Sprintf("%s\nasked: %q", strings.Join(lines, "\n"), p.asked)
	})
	return log
}
