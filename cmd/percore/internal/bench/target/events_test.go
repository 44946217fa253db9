package target

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestEvents: events reach all clients in order, also when one has left. On the fast path the clients'
// answers are detached.
func TestEvents(t *testing.T) {
	for _, e := range []Engine{
		{Name: EngineNet},
		{Name: EnginePercore},
		{Name: EnginePercore, Adapter: true, FastPath: true},
	} {
		t.Run(fmt.Sprintf("%s,fastpath=%t", e.Name, e.FastPath), func(t *testing.T) { sendsEvents(t, e) })
	}
}

func sendsEvents(t *testing.T, e Engine) {
	testnet.NoLeaks(t)
	srv, addr := serveEngine(t, Spec{App: AppEvents, Engine: e})
	url := "http://" + addr
	client := &http.Client{Transport: new(http.Transport), Timeout: testnet.HangTimeout}
	t.Cleanup(client.CloseIdleConnections)
	send := func(data string) {
		t.Helper()
		resp, err := client.Post(url, "text/plain", strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); string(body) != string(helloBody) || err != nil {
			t.Errorf("sending %s: got %q, %v", data, body, err)
		}
	}
	var clients []io.ReadCloser
	for range 3 {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("got Content-Type %q", got)
		}
		clients = append(clients, resp.Body)
		if got := event(t, resp.Body); !strings.HasPrefix(got, "retry: ") || strings.Count(got, "\n") != 2 {
			t.Errorf("the first event: got %q", got)
		}
	}
	if e.FastPath && runtime.GOOS == "linux" {
		testnet.Eventually(t, "answers that are detached", func() bool { return detached(srv) == len(clients) })
	}
	for i, data := range []string{"one", "two", "three"} {
		if i == 2 {
			clients[0].Close()
			clients = clients[1:]
		}
		send(data)
		for j, c := range clients {
			if got, want := event(t, c), "data: "+data+"\n\n"; got != want {
				t.Errorf("client %d: got %q, want %q", j, got, want)
			}
		}
	}
}

// event reads an event.
func event(t *testing.T, r io.Reader) string {
	t.Helper()
	var all []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(all), "\n\n"); all = append(all, b[0]) {
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("%v after %q", err, all)
		}
	}
	return string(all)
}
