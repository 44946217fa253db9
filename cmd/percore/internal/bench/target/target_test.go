package target

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, which never stops
	testnet.Main(m)
}

func TestUsageCounts(t *testing.T) {
	before, err := usage()
	var keep [][]byte
	for range 100 {
		keep = append(keep, make([]byte, 10_000))
	}
	after, failure := usage()
	if objects, n := after.Mallocs-before.Mallocs, after.AllocBytes-before.AllocBytes; err != nil || failure != nil || objects < uint64(len(keep)) || n < 1_000_000 {
		t.Errorf("%d objects and %d bytes allocated, %v, %v; want at least %d and 1000000", objects, n, err, failure, len(keep))
	}
}

// TestMemoryCounts holds on to 32 MiB and looks for them.
func TestMemoryCounts(t *testing.T) {
	before, err := memory()
	if err != nil {
		t.Fatal(err)
	}
	const size = 32 << 20
	block := bytes.Repeat([]byte{1}, size)
	after, err := memory()
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Heap - before.Heap; got < size*9/10 || got > 2*size {
		t.Errorf("heap grew by %d, want %d", got, size)
	}
	// The process's other threads change it at the same time, and the kernel counts it by processor and
	// sums up now and then.
	const residentMin = size / 2
	if got := after.Resident - before.Resident; got < residentMin {
		t.Errorf("resident memory grew by %d, want %d", got, size)
	}
	if block[0] != 1 {
		t.Fatal("the block has gone")
	}
	block = nil
	if race.Enabled {
		return // it keeps memory of its own for the block, and takes more of that when the block is freed
	}
	testnet.Eventually(t, "resident memory shrinking", func() bool {
		gone, err := memory()
		if err != nil {
			t.Fatal(err)
		}
		return after.Resident-gone.Resident >= residentMin
	})
}

// TestCaller: each client makes its calls, of each kind that it has, and fails if the backend does.
func TestCaller(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, backend := range map[string]scenario.Scenario{
		"short":    {App: scenario.AppHTTP},
		"dial":     {App: scenario.AppHTTP, Dial: true},
		"unix":     {App: scenario.AppHTTP, Unix: true},
		"download": {App: scenario.AppFiles, Path: "/file"},
		"missing":  {App: scenario.AppFiles, Path: "/missing"},
		"upload":   {App: scenario.AppUpload, Payload: 100 << 10},
		"chunked":  {App: scenario.AppUpload, Payload: 100 << 10, Chunked: true},
		"mirror":   {App: scenario.AppMirror, Payload: 100 << 10},
		"unary":    {App: scenario.AppGRPC, Payload: 100 << 10, Conns: 2},
		"list":     {App: scenario.AppGRPC, Payload: 128, Conns: 2, List: true},
		"pingpong": {App: scenario.AppGRPC, Payload: 128, Conns: 2, Stream: true},
		"h2c":      {App: scenario.AppUpload, Payload: 100 << 10, Conns: 2, HTTP2: true},
		"refused":  {App: scenario.AppGRPC, Conns: 1},
	} {
		served := backend
		if kind == "refused" {
			served.App = scenario.AppHTTP
		}
		behind := serve(t, scenario.Order{Scenario: served, FileDir: dir})
		for _, name := range []string{"net", "percore+fastpath", "fasthttp"} {
			engine, err := scenario.EngineNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			order := scenario.Order{Scenario: scenario.Scenario{App: scenario.AppCaller, Backend: &backend}, Engine: engine, Behind: behind}
			if !engine.Serves(&order.Scenario) {
				continue
			}
			client := newCaller(&order)
			for _, close := range client.closes {
				defer close()
			}
			for range 3 {
				if err := client.call(); (err == nil) == (kind == "missing" || kind == "refused") {
					t.Errorf("%s, %s: got error %v", name, kind, err)
				}
			}
		}
	}
}

// serve runs a server on package net until the test ends and returns its address.
func serve(t *testing.T, order scenario.Order) string {
	t.Helper()
	srv, err := newServer(&order)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(&order)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		srv.serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

// TestCommands: commands are answered the same in whatever portions they come.
func TestCommands(t *testing.T) {
	const set, get = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
	for _, c := range []struct{ commands, want, wantErr string }{
		{get, "$-1\r\n", ""},
		{set + get + set, "+OK\r\n$5\r\nhello\r\n+OK\r\n", ""},
		{strings.Replace(set, "SET", "PUT", 1), "", "neither GET nor SET"},
		{strings.Replace(get, "GET", "SET", 1), "", "neither GET nor SET"},
		{"*x\r\n", "", "Protocol error"},
	} {
		for portion := range len(c.commands) {
			var answers bytes.Buffer
			var err error
			app, rest := NewApp(scenario.AppRESP), ""
			for i := 0; i < len(c.commands) && err == nil; i += portion + 1 {
				var used int
				rest += c.commands[i:min(i+portion+1, len(c.commands))]
				used, err = app.Data(&answers, []byte(rest))
				rest = rest[used:]
			}
			if answers.String() != c.want || (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Fatalf("%q by %d bytes: got %q, %v, want %q, %s", c.commands, portion+1, &answers, err, c.want, c.wantErr)
			}
		}
	}
}
