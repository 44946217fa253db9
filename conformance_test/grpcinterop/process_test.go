package grpcinterop

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/percore/percore/internal/testnet"
)

// clientProcess is the name of the process that runs all cases against a server of another process.
// These environment variables tell it which.
const (
	clientProcess     = "interop client"
	clientTarget      = "PERCORE_INTEROP_TARGET"
	clientCertificate = "PERCORE_INTEROP_CERTIFICATE" // of the server, in DER and hexadecimal; "": no TLS
)

// TestInteropProcess runs every case with grpc-go's client in a process of its own, which shares nothing
// with the server: no buffers, no codecs, no timers.
func TestInteropProcess(t *testing.T) {
	for _, side := range []side{sides[0], ownServer, pastServer} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("server=%s/TLS=%t", side.name, secure), func(t *testing.T) {
				testnet.NoLeaks(t)
				creds, certificate := insecure.NewCredentials(), ""
				if secure {
					config, _ := testnet.TLS(t)
					creds, certificate = credentials.NewTLS(config), hex.EncodeToString(config.Certificates[0].Certificate[0])
				}
				ln := testnet.Listen(t, side.listen, testnet.TCP4)
				server := side.newServer(creds)
				testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
				serveGRPC(t, server, ln)
				client := testnet.StartChild(t, clientProcess, clientTarget+"="+target(ln.Addr()), clientCertificate+"="+certificate)
				results := make(map[string]string)
				for lines := bufio.NewScanner(client.Stdout); lines.Scan(); {
					name, result, _ := strings.Cut(lines.Text(), ": ")
					results[name] = result
				}
				if err := client.Wait(); err != nil {
					t.Error(err)
				}
				for _, c := range cases {
					if got := results[c.name]; got != passed && side.supports(c) {
						t.Errorf("%s: got %q", c.name, got)
					}
				}
			})
		}
	}
}

const passed = "passed"

// runClientProcess runs all cases, and prints a line for each.
func runClientProcess() {
	creds := insecure.NewCredentials()
	if text := os.Getenv(clientCertificate); text != "" {
		der, err := hex.DecodeString(text)
		if err != nil {
			panic(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			panic(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(certificate)
		creds = credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost"})
	}
	for _, c := range cases {
		result := passed
		if err := runCase(context.Background(), c, sides[0], os.Getenv(clientTarget), creds); err != nil {
			result = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Printf("%s: %s\n", c.name, result)
	}
}
