package main

import (
	"bufio"
	"context"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/examples/cluster/client"
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

// start serves a hub with a NATS server of its own until the test ends, and returns its address.
func start(t *testing.T) (string, *hub) {
	b, err := openBackbone(t.Context(), backboneConfig{store: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	h, err := newHub(b)
	if err != nil {
		t.Fatal(err)
	}
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln, h, 0) }()
	t.Cleanup(func() {
		stop()
		if err := testnet.Receive(t, "the server's end", done); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		testnet.Eventually(t, "the members' end", func() bool { return wsadapter.ReadStats().Sessions == 0 })
	})
	return ln.Addr().String(), h
}

// person is a member of the test's.
type person struct {
	*client.Member
	heard chan client.Message
	acked chan uint64
	leave context.CancelFunc
	left  chan struct{}
}

// join makes a member, and returns when it has joined.
func join(t *testing.T, address, room, name string) *person {
	p := &person{heard: make(chan client.Message, 10_000), acked: make(chan uint64, 10_000), left: make(chan struct{})}
	joined := make(chan bool, 100)
	p.Member = client.New(client.Config{
		Servers: []string{address}, Room: room, Name: name,
		Joined: func() { joined <- true },
		Hear:   func(m client.Message) { p.heard <- m },
		Acked:  func(_, id uint64) { p.acked <- id },
		Gap:    func() { t.Error("a gap") },
	})
	ctx, leave := context.WithCancel(context.Background())
	p.leave = leave
	go func() { defer close(p.left); p.Run(ctx) }()
	t.Cleanup(func() { leave(); testnet.Receive(t, "the member's end", p.left) })
	testnet.Receive(t, "the member", joined)
	return p
}

// say says something, and returns its id.
func (p *person) say(t *testing.T, text string) uint64 {
	t.Helper()
	p.Send(text)
	return testnet.Receive(t, "the acknowledgement", p.acked)
}

func (p *person) hear(t *testing.T, want string) {
	t.Helper()
	if m := testnet.Receive(t, want, p.heard); m.From+": "+m.Text != want {
		t.Fatalf("heard %q, want %q", m.From+": "+m.Text, want)
	}
}

// TestRooms tests that a room's members hear each other, and none of another room.
func TestRooms(t *testing.T) {
	address, _ := start(t)
	ann, bob, eve := join(t, address, "one", "ann"), join(t, address, "one", "bob"), join(t, address, "two", "eve")
	first := ann.say(t, "hello")
	eve.say(t, "secret")
	if second := bob.say(t, "hello, ann"); second <= first {
		t.Errorf("id %d after %d", second, first)
	}
	for _, p := range []*person{ann, bob} {
		p.hear(t, "ann: hello")
		p.hear(t, "bob: hello, ann")
	}
	eve.hear(t, "eve: secret")
}

// dial joins by hand.
func dial(t *testing.T, address, query string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+address+"/hub?room=one&name=raw&member=0123456789abcdef"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	ws.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	return ws
}

// read returns the next of a connection's messages that have the key.
func read(t *testing.T, ws *websocket.Conn, key string) map[string]any {
	t.Helper()
	for {
		var m map[string]any
		if err := ws.ReadJSON(&m); err != nil {
			t.Fatal(err)
		}
		if _, ok := m[key]; ok {
			return m
		}
	}
}

// TestTwice sends a message again, over another connection: it is acknowledged again and comes once.
func TestTwice(t *testing.T) {
	address, _ := start(t)
	ann := join(t, address, "one", "ann")
	var ids []any
	for range 2 {
		ws := dial(t, address, "")
		if err := ws.WriteMessage(websocket.TextMessage, []byte(`{"n":1,"text":"once"}`)); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, read(t, ws, "ack")["id_of"])
		ws.Close()
	}
	if ids[0] != ids[1] {
		t.Errorf("the same message has the ids %v", ids)
	}
	ann.say(t, "last")
	ann.hear(t, "raw: once")
	ann.hear(t, "ann: last")
}

// TestResume joins again after more messages than a room has in memory, and gets them all.
func TestResume(t *testing.T) {
	address, h := start(t)
	ann := join(t, address, "one", "ann")
	first := ann.say(t, "first")
	other := join(t, address, "two", "other")
	for i := range recentMax + 10 {
		ann.Send(strconv.Itoa(i))
		other.Send("elsewhere")
	}
	for range recentMax + 10 {
		testnet.Receive(t, "the acknowledgement", ann.acked)
	}
	for range recentMax + 11 {
		testnet.Receive(t, "ann's own messages", ann.heard)
	}
	h.mu.Lock()
	r := h.rooms["one"]
	h.mu.Unlock()
	if _, base := r.since(first, 1); base == 0 {
		t.Fatal("the room has everything in memory")
	}
	ws := dial(t, address, "&after="+strconv.FormatUint(first, 10))
	for i := range recentMax + 10 {
		if m := read(t, ws, "id"); m["text"] != strconv.Itoa(i) {
			t.Fatalf("message %d: got %v", i, m)
		}
	}
}

// TestGap joins again when what the member has not heard was thrown away: it is told.
func TestGap(t *testing.T) {
	address, h := start(t)
	ann := join(t, address, "one", "ann")
	first := ann.say(t, "first")
	last := first
	for range 3 {
		last = ann.say(t, "more")
	}
	ann.leave()
	testnet.Receive(t, "ann's end", ann.left)
	testnet.Eventually(t, "the room's end", func() bool { return len(h.openRooms()) == 0 })
	config := h.backbone.stream.CachedInfo().Config
	config.MaxMsgs = 1
	if _, err := h.backbone.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	ws := dial(t, address, "&after="+strconv.FormatUint(first, 10))
	if m := read(t, ws, "id"); m["id"] != float64(last) {
		t.Errorf("got %v, want message %d", m, last)
	}
	read(t, ws, "gap")
}

// TestPresence tests that members are told who comes and goes.
func TestPresence(t *testing.T) {
	address, _ := start(t)
	ws := dial(t, address, "")
	await := func(want float64) {
		t.Helper()
		for read(t, ws, "present")["count"] != want {
		}
	}
	await(1)
	ann := join(t, address, "one", "ann")
	await(2)
	ann.leave()
	await(1)
}

// TestSilentReader has a member that never reads: it is cut off, and the others hear everything.
func TestSilentReader(t *testing.T) {
	address, h := start(t)
	ann := join(t, address, "one", "ann")
	silent := dial(t, address, "").NetConn().(*net.TCPConn)
	silent.SetReadBuffer(4 << 10) // or it takes megabytes before the server notices
	long := strings.Repeat("x", messageMax-100)
	testnet.Eventually(t, "two members", func() bool { return wsadapter.ReadStats().Sessions == 2 })
	for wsadapter.ReadStats().Sessions == 2 { // until a socket's buffers are full, and the room's memory
		ann.say(t, long)
		testnet.Receive(t, "the message", ann.heard)
	}
	ann.say(t, "alone")
	ann.hear(t, "ann: alone")
	if n := len(h.openRooms()); n != 1 {
		t.Errorf("%d rooms", n)
	}
}

// TestRefused tests requests that are no member's.
func TestRefused(t *testing.T) {
	address, _ := start(t)
	for _, query := range []string{
		"", "?room=a.b&name=x&member=0123456789abcdef", "?room=a&name=&member=0123456789abcdef",
		"?room=a&name=x&member=short", "?room=a&name=x&member=0123456789abcdef&after=x", "?room=*&name=x&member=0123456789abcdef",
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

// process is a process of the hub.
type process struct {
	*testnet.ChildProcess
	address string
}

// startCluster starts three processes, and returns when they serve.
func startCluster(t *testing.T) []*process {
	var routes []string
	for range 3 {
		routes = append(routes, testnet.Reserve(t)) // each NATS server needs the others' beforehand
	}
	processes := make([]*process, 3)
	var starting sync.WaitGroup
	for i := range processes {
		flags := []string{"-addr", "127.0.0.1:0", "-cluster", routes[i], "-routes", strings.Join(routes, ","), "-store", t.TempDir()}
		p := &process{ChildProcess: testnet.StartChild(t, "hub", flagsVariable+"="+strings.Join(flags, " "))}
		processes[i] = p
		starting.Go(func() {
			lines := bufio.NewScanner(p.Stdout)
			for p.address == "" && lines.Scan() {
				t.Log(lines.Text())
				_, p.address, _ = strings.Cut(lines.Text(), "serving http://")
			}
		})
	}
	testnet.Within(t, "the start of three processes", starting.Wait)
	for _, p := range processes {
		if p.address == "" {
			t.Fatal("a process did not start")
		}
	}
	return processes
}

// TestKilled kills one of three processes while members talk: each member hears every acknowledged
// message of its room, once and in the same order. It is run by hand, since three NATS servers that
// start at the same time may take long to agree on a leader while other programs have the processors:
//
//	HUB_MEMBERS=9000 go test -run TestKilled -v .
func TestKilled(t *testing.T) {
	members := os.Getenv("HUB_MEMBERS")
	if members == "" {
		t.Skip("takes some 15 s or more; to run it: HUB_MEMBERS=60 go test -run TestKilled .")
	}
	processes := startCluster(t)
	var servers []string
	for _, p := range processes {
		servers = append(servers, p.address)
	}
	load := exec.Command("go", "run", "./load", "-servers", strings.Join(servers, ","), "-members", members,
		"-rooms", "6", "-duration", "6s", "-settle", testnet.HangTimeout.String())
	output, err := load.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		t.Log(lines.Text())
		if strings.Contains(lines.Text(), "talk for") {
			break
		}
	}
	// The second is anything between a follower and the stream's leader.
	time.AfterFunc(2*time.Second, func() { processes[0].Kill() })
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := load.Wait(); err != nil {
		t.Error(err)
	}
}
