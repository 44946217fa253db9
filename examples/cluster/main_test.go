package main

import (
	"bufio"
	"context"
	"log"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/internal/testnet"
)

// flagsVariable has the flags of a process of the hub.
const flagsVariable = "HUB_FLAGS"

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithChild("hub", runHub)) }

// runHub is a process of the hub. It says on its standard output that it serves.
func runHub() {
	log.SetOutput(os.Stdout)
	os.Args = append(os.Args[:1], strings.Fields(os.Getenv(flagsVariable))...)
	main()
}

// startNATS starts a NATS server, and returns its URL.
func startNATS(t *testing.T) string {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(testnet.HangTimeout) {
		t.Fatal("NATS did not start")
	}
	return s.ClientURL()
}

// start serves a hub until the test ends, and returns its address.
func start(t *testing.T) (string, *hub) {
	h, err := newHub(t.Context(), startNATS(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, handover.Part{Listener: ln}, h) }()
	t.Cleanup(func() {
		stop()
		if err := testnet.Receive(t, "the server's end", done); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		testnet.Eventually(t, "the members' end", func() bool { return wsadapter.ReadStats().Sessions == 0 })
	})
	return ln.Addr().String(), h
}

// dial joins room one by hand, and returns when it has joined.
func dial(t *testing.T, address, query string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+address+"/hub?room=one&name=raw"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	ws.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	if e := read(t, ws); e.Data != nil {
		t.Fatalf("got %+v, want to learn where I begin", e)
	}
	return ws
}

func read(t *testing.T, ws *websocket.Conn) (e event) {
	t.Helper()
	if err := ws.ReadJSON(&e); err != nil {
		t.Fatal(err)
	}
	return e
}

// hear returns the id of the next message, which must be n.
func hear(t *testing.T, ws *websocket.Conn, n int) (id uint64) {
	t.Helper()
	e := read(t, ws)
	if !strings.Contains(string(e.Data), `"key":"`+strconv.Itoa(n)+`"`) {
		t.Fatalf("heard %+v, want message %d", e, n)
	}
	return e.ID
}

func say(t *testing.T, ws *websocket.Conn, n int) {
	t.Helper()
	if err := ws.WriteJSON(said{Key: strconv.Itoa(n), Text: "hello"}); err != nil {
		t.Fatal(err)
	}
}

// TestTwice sends a message again, over another connection: it comes once.
func TestTwice(t *testing.T) {
	address, _ := start(t)
	witness, first := dial(t, address, ""), dial(t, address, "")
	say(t, first, 1)
	hear(t, first, 1)
	first.Close()
	second := dial(t, address, "")
	say(t, second, 1)
	say(t, second, 2)
	hear(t, second, 2)
	hear(t, witness, 1)
	hear(t, witness, 2)
}

// TestResume joins again after more messages than a room has in memory, and gets them all.
func TestResume(t *testing.T) {
	address, h := start(t)
	ws := dial(t, address, "")
	say(t, ws, 1)
	first := hear(t, ws, 1)
	const last = recentMax + 10
	for n := 2; n <= last; n++ {
		say(t, ws, n)
		hear(t, ws, n)
	}
	h.mu.Lock()
	base := h.rooms["one"].base
	h.mu.Unlock()
	if base <= first {
		t.Fatal("the room has everything in memory")
	}
	again := dial(t, address, "&after="+strconv.FormatUint(first, 10))
	for n := 2; n <= last; n++ {
		hear(t, again, n)
	}
}

// TestGap joins again when what the member has not heard was thrown away: it is told.
func TestGap(t *testing.T) {
	address, h := start(t)
	ws := dial(t, address, "")
	for n := 1; n <= 3; n++ {
		say(t, ws, n)
		hear(t, ws, n)
	}
	ws.Close()
	testnet.Eventually(t, "the room's end", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.rooms) == 0
	})
	config := h.stream.CachedInfo().Config
	config.MaxMsgs = 1
	if _, err := h.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	again := dial(t, address, "&after=1")
	hear(t, again, 3)
	if e := read(t, again); !e.Gap {
		t.Errorf("got %+v, want to learn of the gap", e)
	}
}

// TestSilentReader has a member that never reads: it is cut off, and the others hear everything.
func TestSilentReader(t *testing.T) {
	address, h := start(t)
	h.patience = 100 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c := newClient([]string{address}, "one", "talker")
	go func() { ended <- c.run(ctx) }()
	dial(t, address, "")
	testnet.Eventually(t, "two members", func() bool { return wsadapter.ReadStats().Sessions == 2 })
	said := 0
	say := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			c.send(text)
		}
		said += len(texts)
		testnet.Eventually(t, "the messages", func() bool { return c.has(func(c *client) bool { return len(c.heard) == said }) })
	}
	many := slices.Repeat([]string{strings.Repeat("x", messageMax-100)}, 100)
	for wsadapter.ReadStats().Sessions == 2 { // until a socket's buffers are full
		say(many...)
	}
	say("alone")
	stop()
	if err := testnet.Receive(t, "the member's end", ended); err != nil {
		t.Error(err)
	}
}

// TestRefused tests requests that are no member's.
func TestRefused(t *testing.T) {
	address, _ := start(t)
	for _, query := range []string{
		"", "?room=a.b&name=x", "?room=a&name=", "?room=a&name=x&after=x", "?room=*&name=x",
	} {
		resp, err := http.Get("http://" + address + "/hub" + query)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: got %s", query, resp.Status)
		}
	}
}

// TestKilled kills one of three processes while members talk, and stops another: each member hears every
// message of its room, once and in the same order.
func TestKilled(t *testing.T) {
	url := startNATS(t)
	var servers []string
	var processes []*testnet.ChildProcess
	for range 3 {
		p := testnet.StartChild(t, "hub", flagsVariable+"=-addr 127.0.0.1:0 -nats "+url)
		address := ""
		for lines := bufio.NewScanner(p.Stdout); address == "" && lines.Scan(); {
			t.Log(lines.Text())
			_, address, _ = strings.Cut(lines.Text(), "serving http://")
		}
		if address == "" {
			t.Fatal("a process did not start")
		}
		servers, processes = append(servers, address), append(processes, p)
	}
	clients := newClients(servers, 60, 6)
	some := func(has func(*client) bool) func() bool {
		return func() bool { return slices.ContainsFunc(clients, func(c *client) bool { return c.has(has) }) }
	}
	var ending sync.WaitGroup
	ending.Go(func() {
		testnet.Eventually(t, "the members talk", some(func(c *client) bool { return len(c.heard) > 0 }))
		processes[0].Kill()
		testnet.Eventually(t, "some join again", some(func(c *client) bool { return c.joins > 1 }))
		if p, err := os.FindProcess(processes[1].PID()); err == nil {
			_ = p.Signal(syscall.SIGTERM)
		}
	})
	if err := talk(t.Context(), clients, 6, 3*time.Second); err != nil {
		t.Error(err)
	}
	ending.Wait()
}
