//go:build !percore_net

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestRun keeps one connection of a client open over two restarts.
func TestRun(t *testing.T) {
	server := testnet.StartRestarts(t, "HANDOVER_EXAMPLE=1", "-addr", "127.0.0.1:0")
	conn, err := net.Dial("tcp", server.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for generation := range 3 {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example\r\n\r\n"); err != nil {
			t.Fatalf("generation %d: %v", generation, err)
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("generation %d: %v", generation, err)
		}
		body, err := io.ReadAll(resp.Body)
		if want := fmt.Sprintln("hello from process", server.PID); err != nil || string(body) != want {
			t.Errorf("generation %d: got %q, %v, want %q", generation, body, err, want)
		}
		if generation < 2 {
			server.Restart()
		}
	}
	if err := server.WaitFirst(); err != nil {
		t.Errorf("the first process: %v", err)
	}
}
