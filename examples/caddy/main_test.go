package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithChild("caddy", runCaddy)) }

// caddyfile is the environment variable with the name of the configuration.
const caddyfile = "CADDY_TEST_CONFIG"

// runCaddy runs Caddy. For each line of its standard input it prints the address that it listens
// on, how many connections percore has accepted, and how many requests the transport has made. It exits
// at the end of its standard input.
func runCaddy() {
	os.Args = []string{"caddy", "run", "--config", os.Getenv(caddyfile), "--adapter", "caddyfile"}
	go main()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(address(), percore.ReadStats().Accept.Accepted, calls())
	}
	os.Exit(0) // Caddy leaves goroutines behind
}

// calls returns how many requests all transports have made themselves.
func calls() (n int) {
	for _, a := range percore.ReadStats().Adapters {
		for _, m := range a.Metrics {
			if a.Adapter == "client" && m.Name == "requests_total" {
				n += int(m.Value)
			}
		}
	}
	return n
}

// address returns the address of the first listener once there is one, or "none".
func address() string {
	listening.Lock()
	defer listening.Unlock()
	for _, all := range listening.on {
		return all[0].Addr().String()
	}
	return "none"
}

// startCaddy starts Caddy with a configuration in a folder. wait waits for its end.
func startCaddy(t *testing.T, dir string, config []byte) (state func() (address string, accepted uint64, calls int), wait func() error) {
	t.Helper()
	file := dir + "/Caddyfile"
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	caddy := testnet.StartChild(t, "caddy", caddyfile+"="+file, "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	out := bufio.NewReader(caddy.Stdout)
	state = func() (address string, accepted uint64, calls int) {
		fmt.Fprintln(caddy.Stdin)
		if _, err := fmt.Fscanln(out, &address, &accepted, &calls); err != nil {
			t.Fatalf("Caddy's state: %v", err)
		}
		return address, accepted, calls
	}
	return state, caddy.Wait
}

// TestReload makes clients connect, one after the other, while Caddy goes from configuration to
// configuration. No client is refused or reset, and all are on percore.
func TestReload(t *testing.T) {
	config, err := os.ReadFile("Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	dir := testnet.ShortTempDir(t)
	admin := dir + "/admin"
	set := func(greeting string) []byte {
		return []byte(strings.NewReplacer(
			"default_bind", "admin unix/"+admin+"\n\tpersist_config off\n\tdefault_bind",
			":8080", ":0",
			"hello", greeting).Replace(string(config)))
	}
	state, wait := startCaddy(t, dir, set("hello"))
	var address string
	testnet.Eventually(t, "a listener", func() bool { address, _, _ = state(); return address != "none" })

	operator := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", admin)
		},
	}}
	visitor := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testnet.HangTimeout}
	visits := 0
	visit := func() string {
		t.Helper()
		visits++
		resp, err := visitor.Get("http://" + address)
		if errors.Is(err, io.EOF) {
			return "" // the server that net/http shuts down had accepted it
		}
		if err != nil {
			t.Fatalf("visit %d: %v", visits, err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("visit %d: %v", visits, err)
		}
		return string(body)
	}
	if got, want := visit(), "hello from Caddy on percore\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	load := func(config []byte) error {
		resp, err := operator.Post("http://caddy/load", "text/caddyfile", bytes.NewReader(config))
		// As with visits: Caddy replaces this server, too. It may not have read the request.
		for errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			resp, err = operator.Post("http://caddy/load", "text/caddyfile", bytes.NewReader(config))
		}
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		message, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, message)
		}
		return err
	}
	for n := range 10 {
		greeting := fmt.Sprint("hello number ", n)
		loaded := make(chan error, 1)
		go func() { loaded <- load(set(greeting)) }()
		for loading := true; loading; {
			visit()
			select {
			case err := <-loaded:
				if loading = false; err != nil {
					t.Fatal(err)
				}
			default:
			}
		}
		testnet.Eventually(t, "an answer by "+greeting, func() bool { return strings.HasPrefix(visit(), greeting) })
	}
	if _, accepted, _ := state(); runtime.GOOS == "linux" && accepted < uint64(visits) {
		t.Errorf("percore has accepted %d connections of %d", accepted, visits)
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
}
