//go:build !percore_net

package main

import (
	"fmt"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/percore/percore/internal/testnet"
)

// TestRun has members of two rooms that talk over two restarts, each on one connection.
func TestRun(t *testing.T) {
	server := testnet.StartRestarts(t, "WEBSOCKET_EXAMPLE=1", "-addr", "127.0.0.1:0")
	var rooms [2][3]*websocket.Conn
	for i := range rooms {
		for j := range rooms[i] {
			ws, _, err := websocket.DefaultDialer.Dial(fmt.Sprintf("ws://%s/hub?room=%d", server.Address, i), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer ws.Close()
			rooms[i][j] = ws
			say(t, ws, "hello")
			for _, member := range rooms[i][:j+1] { // ws is in the hub when its message comes back
				hear(t, member, "hello")
			}
		}
	}
	for generation := range 3 {
		for i, members := range rooms {
			for j, speaker := range members {
				text := fmt.Sprint("room ", i, ", generation ", generation, ", member ", j)
				say(t, speaker, text)
				for _, listener := range members {
					hear(t, listener, text)
				}
			}
		}
		if generation < 2 {
			server.Restart()
		}
	}
	if err := server.WaitFirst(); err != nil {
		t.Errorf("the first process: %v", err)
	}
}
