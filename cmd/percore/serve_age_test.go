package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/percore/percore/cmd/percore/internal/echopb"
	"github.com/percore/percore/internal/testnet"
)

// With -max-age clients open new connections, and no request fails.
func TestServeMaxAge(t *testing.T) {
	d := startDemo(t, serveOptions{maxAge: 50 * time.Millisecond})
	c, err := net.Dial("tcp", d.httpListener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	testnet.Eventually(t, "Connection: close", func() bool {
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		io.WriteString(c, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("before an answer said so, the connection has ended: %v", err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Close
	})
	if b, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after that: got %d, %v, want the end", b, err)
	}

	rpc, err := grpc.NewClient(d.grpcListener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer rpc.Close()
	conns := make(map[string]bool)
	testnet.Eventually(t, "another connection", func() bool {
		var p peer.Peer
		_, err := echopb.NewEchoClient(rpc).Unary(t.Context(), new(echopb.EchoRequest), grpc.Peer(&p), grpc.WaitForReady(true))
		if err != nil {
			t.Fatalf("Unary: %v", err)
		}
		conns[p.LocalAddr.String()] = true
		return len(conns) > 1
	})
}
