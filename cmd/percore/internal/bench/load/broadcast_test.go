package load

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/internal/testnet"
)

// eventClients is how many clients an eventServer has.
const eventClients = 3

// eventServer serves clients that each get greeting and then, for each POST, what reply makes of it. If
// that is nothing the client's answer ends. It returns its address.
func eventServer(t *testing.T, greeting string, reply func(client int, data string) string) string {
	t.Helper()
	joining, all := make(chan int, eventClients), make([]chan string, eventClients)
	for i := range all {
		joining <- i
		all[i] = make(chan string, 1)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data, _ := io.ReadAll(r.Body); r.Method == http.MethodPost {
			for i, c := range all {
				c <- reply(i, string(data))
			}
			io.WriteString(w, "sent")
			return
		}
		if accept := r.Header.Get("Accept"); accept != "text/event-stream" {
			t.Errorf("a client accepts %q", accept)
		}
		events := all[<-joining]
		for next := greeting; next != ""; {
			io.WriteString(w, next)
			http.NewResponseController(w).Flush()
			select {
			case next = <-events:
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// TestEvents: an operation ends when all clients have the event, and fails if one gets another or none.
func TestEvents(t *testing.T) {
	event := func(_ int, data string) string { return "data: " + data + "\n\n" }
	for name, c := range map[string]struct {
		greeting string
		reply    func(client int, data string) string
		opens    string // what the error of opening says
		fails    string // what that of an operation says
	}{
		"good":        {"retry: 1\n\n", event, "", ""},
		"no greeting": {"", event, "EOF", ""},
		"another": {"retry: 1\n\n", func(i int, data string) string {
			if i == 1 {
				return event(i, strings.ToUpper(data))
			}
			return event(i, data)
		}, "", "differs"},
		"an end": {"retry: 1\n\n", func(i int, data string) string {
			if i == eventClients-1 {
				return ""
			}
			return event(i, data)
		}, "", "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			addr := eventServer(t, c.greeting, c.reply)
			sessions, err := open(&scenario.Job{Addr: addr, Scenario: scenario.Scenario{App: scenario.AppEvents, Conns: eventClients, Callers: 1, Payload: 100}})
			if !says(err, c.opens) {
				t.Fatalf("open: got %v, want an error about %q", err, c.opens)
			}
			if err != nil {
				return
			}
			defer closeAll(sessions)
			s := sessions[0].(*broadcast)
			s.setDeadline(time.Now().Add(testnet.HangTimeout))
			for range 2 {
				if err := s.op(); !says(err, c.fails) {
					t.Fatalf("got %v, want an error about %q", err, c.fails)
				} else if err != nil {
					return
				}
				if n := s.waiting.Load(); n != 0 {
					t.Errorf("%d clients have not got the event", n)
				}
			}
		})
	}
}
