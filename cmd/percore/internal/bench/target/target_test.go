package target

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	new(fasthttp.ResponseHeader).Header() // starts fasthttp's clock, which never stops
	testnet.Main(m)
}

func TestUsageCounts(t *testing.T) {
	before, err := usage()
	if err != nil {
		t.Skip(err)
	}
	var keep [][]byte
	for range 100 {
		keep = append(keep, make([]byte, 10_000))
	}
	after, err := usage()
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Mallocs - before.Mallocs; got < uint64(len(keep)) {
		t.Errorf("%d objects allocated, want at least %d", got, len(keep))
	}
	if got := after.AllocBytes - before.AllocBytes; got < 1_000_000 {
		t.Errorf("%d bytes allocated, want at least 1000000", got)
	}
}

// TestMemoryCounts holds on to 32 MiB and looks for them.
func TestMemoryCounts(t *testing.T) {
	before, err := memory()
	if err != nil {
		t.Skip(err)
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
	short := serve(t, Spec{App: AppHTTP, Engine: Engine{Name: EngineNet}})
	files := serve(t, Spec{App: AppFiles, Dir: dir, Engine: Engine{Name: EngineNet}})
	uploads := serve(t, Spec{App: AppUpload, Engine: Engine{Name: EngineNet}})
	mirrors := serve(t, Spec{App: AppMirror, Engine: Engine{Name: EngineNet}})
	calls := serve(t, Spec{App: AppGRPC, Engine: Engine{Name: EngineNet}})
	http2 := serve(t, Spec{App: AppUpload, HTTP2: true, Engine: Engine{Name: EngineNet}})
	for name, engine := range map[string]Engine{
		"net":      {Name: EngineNet},
		"percore":  {Name: EnginePercore, FastPath: true},
		"fasthttp": {Name: EngineNet, FastHTTP: true},
		"net bare": {Name: EngineNet, Bare: true},
		"bare":     {Name: EnginePercore, Bare: true},
	} {
		for kind, spec := range map[string]Spec{
			"short":    {Backend: short},
			"download": {Backend: files, CallPath: "/file"},
			"missing":  {Backend: files, CallPath: "/missing"},
			"upload":   {Backend: uploads, CallBytes: 100 << 10},
			"mirror":   {Backend: mirrors, CallBytes: 100 << 10},
			"unary":    {Backend: calls, CallBytes: 100 << 10, CallConns: 2},
			"list":     {Backend: calls, CallBytes: 128, CallConns: 2, CallKind: CallList},
			"pingpong": {Backend: calls, CallBytes: 128, CallConns: 2, CallKind: CallPingPong},
			"h2c":      {Backend: http2, CallHTTP2: 2, CallBytes: 100 << 10},
			"unknown":  {Backend: calls, CallConns: 1, CallKind: "x"},
			"refused":  {Backend: short, CallConns: 1},
		} {
			if spec.App, spec.Engine = AppCaller, engine; !spec.Exists() {
				continue
			}
			call, closeIdle := newCall(spec)
			defer closeIdle()
			for range 3 {
				if err := call(); (err == nil) == (kind == "missing" || kind == "unknown" || kind == "refused") {
					t.Errorf("%s, %s: got error %v", name, kind, err)
				}
			}
		}
	}
}

// serve runs the server of a spec on package net until the test ends and returns its address.
func serve(t *testing.T, spec Spec) string {
	t.Helper()
	spec.Engine.Name = EngineNet
	_, addr := serveEngine(t, spec)
	return addr
}

// serveEngine runs the server of a spec until the test ends.
func serveEngine(t *testing.T, spec Spec) (srv server, addr string) {
	t.Helper()
	srv, err := newServer(spec)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen(spec.Engine)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		srv.Serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return srv, l.Addr().String()
}
