//go:build !percore_net

package main

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/percore/percore/internal/testnet"
)

// WebSockets stay through restarts; over TLS their clients are told to connect again, and when the
// server stops all are. All messages are answered.
func TestServeWebSockets(t *testing.T) {
	for name, args := range map[string][]string{"plain": nil, "tls": {"-tls"}} {
		t.Run(name, func(t *testing.T) {
			g := startGenerations(t, args...)
			dialer := websocket.Dialer{HandshakeTimeout: testnet.HangTimeout, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			url := strings.Replace("ws://"+g.httpAddress+"/websocket", "ws://", map[string]string{"plain": "ws://", "tls": "wss://"}[name], 1)
			talkers := make([]*talker, 5)
			for i := range talkers {
				talkers[i] = &talker{dialer: dialer, url: url}
				if err := talkers[i].connect(); err != nil {
					t.Fatal(err)
				}
				defer func() { talkers[i].ws.Close() }()
			}
			say := func(restarts int64) {
				t.Helper()
				for i, c := range talkers {
					if err := c.say(); err != nil {
						t.Fatalf("client %d: %v", i, err)
					}
					want := int64(0)
					if name == "tls" {
						want = restarts
					}
					if got := c.again.Load(); got != want {
						t.Errorf("client %d: connected again %d times after %d restarts, want %d", i, got, restarts, want)
					}
				}
			}
			say(0)
			for n := range 3 {
				g.restart()
				if name == "tls" { // wait until the predecessor has told them
					for _, c := range talkers {
						_ = c.ws.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
						if _, _, err := c.ws.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseServiceRestart) {
							t.Fatalf("got %v, want the close message %d", err, websocket.CloseServiceRestart)
						}
						c.again.Add(1)
						if err := c.connect(); err != nil {
							t.Fatal(err)
						}
					}
				}
				say(int64(n + 1))
			}
			ended := make(chan error, len(talkers))
			for _, c := range talkers {
				go func() {
					_ = c.ws.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
					_, _, err := c.ws.ReadMessage()
					ended <- err
				}()
			}
			g.stop()
			for range talkers {
				if err := testnet.Receive(t, "a client's end", ended); !websocket.IsCloseError(err, websocket.CloseServiceRestart) {
					t.Errorf("when the server stops: got %v", err)
				}
			}
			for _, bad := range []string{"cut off", "panic", "failed"} {
				if g.count(bad) > 0 {
					t.Errorf("the processes say %q:\n%s", bad, fmt.Sprint(g.output))
				}
			}
		})
	}
}
