package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestServe: gRPC, HTTP/1.1, HTTP/2, gRPC-Web and Connect on one port, in clear and over TLS.
func TestServe(t *testing.T) {
	for name, secure := range map[string]bool{"clear": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			s, err := newServer()
			if err != nil {
				t.Fatal(err)
			}
			var config *tls.Config
			creds := insecure.NewCredentials()
			if secure {
				s.http.TLSConfig, config = testnet.TLS(t)
				creds = credentials.NewTLS(config)
			}
			ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.serve(ctx, ln, "", "") }()

			client, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(creds))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := healthpb.NewHealthClient(client).Check(t.Context(), &healthpb.HealthCheckRequest{})
			if err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("got %v, %v, want SERVING", answer, err)
			}
			client.Close()

			one, two := new(http.Protocols), new(http.Protocols)
			one.SetHTTP1(true)
			two.SetHTTP2(true)
			two.SetUnencryptedHTTP2(true)
			for protocols, want := range map[*http.Protocols]string{one: "hello over HTTP/1.1\n", two: "hello over HTTP/2.0\n"} {
				tr := &http.Transport{Protocols: protocols}
				if secure {
					tr.TLSClientConfig = config.Clone()
				}
				send := func(path, contentType, body string) string {
					r, err := http.NewRequest("POST", testnet.URL(ln, secure, path), strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", contentType)
					r.Header.Set("Connect-Protocol-Version", "1")
					resp, err := (&http.Client{Transport: tr}).Do(r)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					b, err := io.ReadAll(resp.Body)
					if err != nil {
						t.Fatal(err)
					}
					return string(b)
				}
				if got := send("/", "text/plain", ""); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				const check = "/grpc.health.v1.Health/Check"
				if got := send(check, "application/json", "{}"); !strings.Contains(got, `"SERVING"`) {
					t.Errorf("Connect: got %q", got)
				}
				// A message {status: SERVING}, and trailers, which are a frame of the body.
				got := []byte(send(check, "application/grpc-web+proto", "\x00\x00\x00\x00\x00"))
				if !bytes.HasPrefix(got, []byte("\x00\x00\x00\x00\x02\x08\x01\x80")) || !bytes.Contains(bytes.ToLower(got), []byte("grpc-status: 0")) {
					t.Errorf("gRPC-Web: got %q", got)
				}
				tr.CloseIdleConnections()
			}
			stop()
			if err := testnet.Receive(t, "the server's end", done); err != nil {
				t.Errorf("got %v, want no error", err)
			}
		})
	}
}
