package main

import (
	"context"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEBSOCKET_EXAMPLE") != "" {
		main()
		return
	}
	testnet.Main(m)
}

// start serves a hub until the test ends.
func start(t *testing.T) net.Listener {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, handover.Part{Listener: ln}) }()
	t.Cleanup(func() {
		stop()
		if err := testnet.Receive(t, "the server's end", done); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		testnet.Eventually(t, "the members' end", func() bool { return wsadapter.ReadStats().Sessions == 0 })
	})
	return ln
}

// join makes a member and sends hello from it: when its own message comes back, the hub has added it.
func join(t *testing.T, ln net.Listener) *websocket.Conn {
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+ln.Addr().String()+"/hub", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	say(t, ws, "hello")
	hear(t, ws, "hello")
	return ws
}

func say(t *testing.T, ws *websocket.Conn, text string) {
	t.Helper()
	if err := ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, ws *websocket.Conn, want string) {
	t.Helper()
	ws.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	if _, text, err := ws.ReadMessage(); err != nil || string(text) != want {
		t.Fatalf("got %.20q, %v, want %.20q", text, err, want)
	}
}

// TestHub tests members that talk, and that wait without a goroutine.
func TestHub(t *testing.T) {
	ln := start(t)
	members := []*websocket.Conn{join(t, ln), join(t, ln), join(t, ln)}
	for i, m := range members {
		for range members[i+1:] {
			hear(t, m, "hello")
		}
	}
	if runtime.GOOS == "linux" {
		testnet.Eventually(t, "the connections' wait", func() bool { return wsadapter.ReadStats().Waiting == len(members) })
	}
	say(t, members[0], "one")
	say(t, members[0], "two")
	for _, m := range members {
		hear(t, m, "one")
		hear(t, m, "two")
	}
}

// TestSilentReader has a member that never reads: it is cut off, and the others receive everything.
func TestSilentReader(t *testing.T) {
	ln := start(t)
	_, talker := join(t, ln), join(t, ln)
	long := strings.Repeat("x", messageMax)
	for wsadapter.ReadStats().Sessions == 2 { // until a socket's buffers and the queue are full
		for range queueMax / 4 {
			say(t, talker, long)
		}
		for range queueMax / 4 {
			hear(t, talker, long)
		}
	}
	say(t, talker, "alone")
	hear(t, talker, "alone")
}

// TestStop tests that members are asked to connect again.
func TestStop(t *testing.T) {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, handover.Part{Listener: ln}) }()
	member := join(t, ln)
	stop()
	if _, _, err := member.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseServiceRestart) {
		t.Errorf("got %v, want a close message with code 1012", err)
	}
	if err := testnet.Receive(t, "the server's end", done); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
