package frameworks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gobwas "github.com/gobwas/ws"
	gorilla "github.com/gorilla/websocket"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/adapters/wsadapter/moving"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/testnet"
)

var (
	restartConns = flag.Int("restart.conns", 90, "clients in TestWebSocketRestarts")
	restartCount = flag.Int("restart.count", 3, "restarts in TestWebSocketRestarts")
)

func init() {
	platformChildren = append(platformChildren, testnet.WithChild("restarting", runRestarting))
}

// dieAtRestore is the environment variable that names a file: while it is there a process dies when
// the first connection has come from its predecessor.
const dieAtRestore = "PERCORE_TEST_DIE_AT_RESTORE"

// counting is a server of WebSockets that restarts at SIGHUP: each library has a path. A Session answers
// each message with its number in the conversation, its text, and the process.
type counting struct {
	group   *moving.Group
	gorilla gorilla.Upgrader
}

// counted is a Session of it.
type counted struct {
	socketEnd
	count int // used by Handle and Save, which are called one at a time
}

func (c *counted) Handle(message []byte) error {
	c.count++
	return c.write(fmt.Appendf(nil, "%d %s %d", c.count, message, os.Getpid()))
}

func (c *counted) Save() ([]byte, error) { return strconv.AppendInt(nil, int64(c.count), 10), nil }
func (c *counted) End(error)             { c.Close() }

func (s *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.begin(s.group.NewUpgrade(w, r), r, 0); err != nil {
		log.Print(err)
	}
}

func (s *counting) restore(up *wsadapter.Upgrade, r *http.Request, state []byte) error {
	if _, err := os.Stat(os.Getenv(dieAtRestore)); err == nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	count, err := strconv.Atoi(string(state))
	if err != nil {
		return err
	}
	return s.begin(up, r, count)
}

func (s *counting) begin(up *wsadapter.Upgrade, r *http.Request, count int) error {
	end, err := s.take(up, r)
	if err == nil {
		wsadapter.Start(up.Conn(), &counted{end, count})
	}
	return err
}

func (s *counting) take(up *wsadapter.Upgrade, r *http.Request) (socketEnd, error) {
	switch r.URL.Path {
	case "/coder":
		c, err := coder.Accept(up, r, &coder.AcceptOptions{CompressionMode: coder.CompressionNoContextTakeover, CompressionThreshold: 1, Subprotocols: []string{"count"}})
		return coderEnd{c}, err
	case "/gobwas":
		c, _, _, err := gobwas.HTTPUpgrader{Protocol: func(p string) bool { return p == "count" }}.Upgrade(r, up)
		return gobwasEnd{c}, err
	}
	c, err := s.gorilla.Upgrade(up, r, nil)
	return &gorillaEnd{Conn: c}, err
}

// runRestarting serves, in a process of its own that restarts. It prints a line when it serves, and one
// when it has ended.
func runRestarting() {
	var conns handover.Conns
	s := &counting{gorilla: gorilla.Upgrader{
		ReadBufferSize: 256, WriteBufferPool: new(sync.Pool), EnableCompression: true, Subprotocols: []string{"count"},
	}}
	s.group = moving.NewGroup(&conns, "counting", s.restore)
	service := handover.Service{
		Parts:     []handover.Part{{Name: "web", Address: "127.0.0.1:0", Server: httpadapter.Wrap(&http.Server{Handler: s})}},
		Restart:   syscall.SIGHUP,
		AnyParent: true,
		Conns:     &conns,
		Drain:     testnet.HangTimeout,
		Ready:     func(l []net.Listener) { fmt.Printf("process %d serves http://%v\n", os.Getpid(), l[0].Addr()) },
	}
	err := service.Run(context.Background())
	for wsadapter.ReadStats().Sessions > 0 {
		time.Sleep(time.Millisecond) // the Ends
	}
	stats := moving.ReadStats()
	fmt.Println("gone", os.Getpid(), stats.Moved, stats.Stayed, stats.Lost, err)
}

// restartingServer is a server of the test, in whichever process it is.
type restartingServer struct {
	*testnet.Restarts
	t *testing.T
}

func startRestarting(t *testing.T) *restartingServer {
	t.Helper()
	if ln := testnet.Listen(t, percore.Listen, testnet.TCP4); seam.ListenerOf(ln) == nil {
		t.Skip("connections move on percore's engine only")
	}
	return &restartingServer{testnet.StartChildRestarts(t, "restarting"), t}
}

// restart restarts the server. It returns what the predecessor says at its end: how many
// connections moved, stayed and were lost, and its error.
func (s *restartingServer) restart() string {
	s.t.Helper()
	gone := regexp.MustCompile(fmt.Sprintf(`(?m)^gone %d (.*)\n`, s.PID))
	s.Restart()
	var found []string
	testnet.Eventually(s.t, "the predecessor's end", func() bool {
		found = gone.FindStringSubmatch(s.Log.String())
		return found != nil
	})
	return found[1]
}

// countingClient sends numbers, and wants each answered once, in order.
type countingClient struct {
	*gorilla.Conn
	name string
	sent int
	pid  int // of the last answer
}

// dial connects a client to the library's path.
func (s *restartingServer) dial(library string) *countingClient {
	s.t.Helper()
	d := gorilla.Dialer{EnableCompression: true, Subprotocols: []string{"count"}, ReadBufferSize: 256, WriteBufferSize: 256}
	c, _, err := d.Dial("ws://"+s.Address+"/"+library, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if c.Subprotocol() != "count" {
		s.t.Fatalf("got the protocol %q", c.Subprotocol())
	}
	return &countingClient{Conn: c, name: library}
}

// ask sends the next number.
func (c *countingClient) ask() error {
	c.sent++
	c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	if err := c.WriteMessage(gorilla.TextMessage, strconv.AppendInt(nil, int64(c.sent), 10)); err != nil {
		return fmt.Errorf("%s: sending %d: %w", c.name, c.sent, err)
	}
	_, answer, err := c.ReadMessage()
	if err != nil {
		return fmt.Errorf("%s: the answer to %d: %w", c.name, c.sent, err)
	}
	var count, number int
	if _, err := fmt.Sscan(string(answer), &count, &number, &c.pid); err != nil || count != c.sent || number != c.sent {
		return fmt.Errorf("%s: got %q, %v, want %d twice", c.name, answer, err, c.sent)
	}
	return nil
}

// TestWebSocketRestarts: clients of three libraries stay connected while the server restarts. A third of
// them sends all the time. Each message is answered once, in order.
//
//	go test -run TestWebSocketRestarts -restart.conns 5000 -restart.count 10 ./conformance_test/frameworks
func TestWebSocketRestarts(t *testing.T) {
	s := startRestarting(t)
	var idle, busy []*countingClient
	for i := range *restartConns {
		c := s.dial([]string{"gorilla", "coder", "gobwas"}[i/3%3])
		if err := c.ask(); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			busy = append(busy, c)
		} else {
			idle = append(idle, c)
		}
	}
	var stop atomic.Bool
	var answered atomic.Int64
	var clients sync.WaitGroup
	for _, c := range busy {
		clients.Go(func() {
			for !stop.Load() {
				if err := c.ask(); err != nil {
					t.Error(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for i := range *restartCount {
		before := answered.Load()
		if got, want := s.restart(), fmt.Sprint(len(idle)+len(busy), " 0 0 <nil>"); got != want {
			t.Errorf("restart %d: got %q moved, stayed and lost, want %q", i, got, want)
		}
		var asks sync.WaitGroup
		for _, c := range idle {
			asks.Go(func() {
				if err := c.ask(); err != nil {
					t.Error(err)
				} else if c.pid != s.PID {
					t.Errorf("got an answer of process %d, want %d", c.pid, s.PID)
				}
			})
		}
		asks.Wait()
		testnet.Eventually(t, "answers", func() bool { return answered.Load() > before })
	}
	stop.Store(true)
	clients.Wait()
	t.Logf("%d restarts with %d clients, %d messages answered", *restartCount, *restartConns, answered.Load())
	for _, c := range append(idle, busy...) {
		c.Close()
	}
	s.Stop()
}

// TestWebSocketDeadSuccessor: a successor dies as soon as it has some of the connections. The others go
// on in the predecessor, and move to its next successor.
func TestWebSocketDeadSuccessor(t *testing.T) {
	file := testnet.TempFile(t, nil).Name()
	t.Setenv(dieAtRestore, file)
	s := startRestarting(t)
	const n = 3 * handover.CarriedMax
	var clients []*countingClient
	for i := range n {
		c := s.dial([]string{"gorilla", "coder", "gobwas"}[i%3])
		if err := c.ask(); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	if err := syscall.Kill(s.PID, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	// askAll asks all clients, and keeps those that get an answer.
	askAll := func() (ended int) {
		var left []*countingClient
		for _, c := range clients {
			var closed *gorilla.CloseError
			switch err := c.ask(); {
			case err == nil:
				left = append(left, c)
				continue
			case errors.As(err, &closed) && closed.Code != gorilla.CloseAbnormalClosure, errors.Is(err, os.ErrDeadlineExceeded):
				t.Errorf("got %v, want the connection to go on or to end", err)
			}
			c.Close()
			ended++
		}
		clients = left
		return ended
	}
	testnet.Eventually(t, "the end of those that the successor had", func() bool { return askAll() > 0 })
	askAll() // since the first ended, what the successor had gets no answer
	if len(clients) == 0 {
		t.Skip("the successor had all connections when it died")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	old := s.PID
	s.restart()
	for _, c := range clients {
		if err := c.ask(); err != nil {
			t.Error(err)
		} else if c.pid == old {
			t.Errorf("got an answer of process %d, want %d", old, s.PID)
		}
		c.Close()
	}
	s.Stop()
}
