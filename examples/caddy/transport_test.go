package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// proxies has a proxy for each kind of server. The first server of the last one is down.
const proxies = `{
	admin off
	persist_config off
	default_bind percore/
}

http://:0 {
	handle /unix/* {
		reverse_proxy unix/%[2]s {
			transport percore
		}
	}
	handle /h2c/* {
		reverse_proxy h2c://%[3]s {
			transport percore
		}
	}
	handle /tls/* {
		reverse_proxy https://%[4]s {
			transport percore {
				tls_insecure_skip_verify
			}
		}
	}
	handle /timeout/* {
		reverse_proxy %[1]s {
			transport percore {
				read_timeout 1h
			}
		}
	}
	handle {
		reverse_proxy %[5]s %[1]s {
			lb_policy first
			lb_retries 1
			fail_duration 1h
			transport percore {
				keepalive 1h
			}
		}
	}
}
`

// TestTransport makes requests to servers of all kinds through Caddy.
func TestTransport(t *testing.T) {
	more := make(chan struct{})
	var mux http.ServeMux
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Proto, r.URL.Path, body)
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "one\n")
		w.(http.Flusher).Flush()
		<-more
		io.WriteString(w, "two\n")
	})
	mux.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello ")
		_, _ = io.Copy(c, rw)
	})
	newServer := func() *httptest.Server {
		s := httptest.NewUnstartedServer(&mux)
		t.Cleanup(s.Close)
		return s
	}
	plain, overTLS, clear2, local := newServer(), newServer(), newServer(), newServer()
	plain.Start()
	overTLS.EnableHTTP2 = true
	overTLS.StartTLS()
	clear2.Config.Protocols = new(http.Protocols)
	clear2.Config.Protocols.SetUnencryptedHTTP2(true)
	clear2.Start()
	dir := testnet.ShortTempDir(t)
	socket := dir + "/socket"
	local.Listener.Close()
	var err error
	if local.Listener, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	local.Start()

	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	config := fmt.Sprintf(proxies, at(plain), socket, at(clear2), at(overTLS), testnet.Reserve(t))
	state, wait := startCaddy(t, dir, []byte(config))
	var address string
	testnet.Eventually(t, "a listener", func() bool { address, _, _ = state(); return address != "none" })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testnet.HangTimeout}

	want := 0 // requests that percore's transport has made
	for _, r := range []struct {
		method, path, protocol string
		served                 bool
	}{
		{http.MethodPost, "/1", "HTTP/1.1", true}, // also after the first server has refused
		{http.MethodGet, "/2", "HTTP/1.1", true},
		{http.MethodPost, "/tls/", "HTTP/2.0", true},
		{http.MethodPost, "/h2c/", "HTTP/2.0", true},
		{http.MethodPost, "/unix/", "HTTP/1.1", false},
		{http.MethodPost, "/timeout/", "HTTP/1.1", false},
	} {
		req, err := http.NewRequest(r.method, "http://"+address+r.path, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got, want := fmt.Sprint(string(body), err), fmt.Sprintf("%s %s %s body<nil>", r.method, r.protocol, r.path); got != want {
			t.Errorf("%s: got %q, want %q", r.path, got, want)
		}
		if r.served && runtime.GOOS == "linux" {
			want++
		}
		if _, _, got := state(); got != want {
			t.Errorf("%s: got %d requests of percore's, want %d", r.path, got, want)
		}
	}

	resp, err := client.Get("http://" + address + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	if line, err := stream.ReadString('\n'); line != "one\n" || err != nil {
		t.Errorf("got %q, %v before the answer's end", line, err)
	}
	close(more)
	if line, err := stream.ReadString('\n'); line != "two\n" || err != nil {
		t.Errorf("got %q, %v, want the rest", line, err)
	}

	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /socket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nthere")
	br := bufio.NewReader(c)
	if resp, err = http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v, want an upgrade", resp, err)
	}
	echo := make([]byte, len("hello there"))
	if _, err := io.ReadFull(br, echo); string(echo) != "hello there" {
		t.Errorf("got %q, %v", echo, err)
	}
	c.Close()
	if err := wait(); err != nil {
		t.Error(err)
	}
}
