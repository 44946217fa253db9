package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	useVariant()
	skipTLSWriteTimeouts()
	slog.SetDefault(slog.New(&warnings))
	pattern(0) // takes longer than the deadlines of some tests that need it first
	testnet.Main(m, append(children, testnet.WithCheck(warnings.check))...)
}

// warnings collects the engine's log lines. The engine logs when something is wrong with the
// process, which no test here provokes.
var warnings warningLog

// A warningLog is a slog.Handler that keeps the messages.
type warningLog struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (w *warningLog) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lines) == 0 {
		return nil
	}
	return fmt.Errorf("the engine logged %q", w.lines)
}

func (w *warningLog) Enabled(context.Context, slog.Level) bool { return true }
func (w *warningLog) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w *warningLog) WithGroup(string) slog.Handler            { return w }

func (w *warningLog) Handle(_ context.Context, record slog.Record) error {
	line := record.Message
	if strings.Contains(line, "FileListeners") {
		return nil // a script passes a port on with File, as on net
	}
	record.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	return nil
}

// children are the helper processes of the suites. Each file adds its own at initialization.
var children []testnet.Option

// An engine is a way to listen. Every suite runs on each of them.
type engine struct {
	name         string
	listen       testnet.ListenFunc
	configured   func(ctx context.Context, config net.ListenConfig, network, address string) (net.Listener, error)
	fileListener func(*os.File) (net.Listener, error)
	serve        func(srv *http.Server) testnet.WebServer        // nil: srv serves itself
	dial         func(network, address string) (net.Conn, error) // not nil: of a connection the dialed end is tested, see dial_engine_test.go
}

// The reference and the engine that is compared with it. Multipath TCP is off in the reference
// because percore leaves it off unless requested, and the kernel's MPTCP sockets answer some
// options differently.
var (
	netEngine     = engine{"net", listenPlainTCP, configuredNet, net.FileListener, nil, nil}
	percoreEngine = engine{"percore", percore.Listen, configuredPercore, percore.FileListener, nil, nil}
	engines       = []engine{netEngine, percoreEngine}
)

func listenPlainTCP(network, address string) (net.Listener, error) {
	return configuredNet(context.Background(), net.ListenConfig{}, network, address)
}

func configuredNet(ctx context.Context, config net.ListenConfig, network, address string) (net.Listener, error) {
	config.SetMultipathTCP(false)
	return config.Listen(ctx, network, address)
}

func configuredPercore(ctx context.Context, config net.ListenConfig, network, address string) (net.Listener, error) {
	lc := percore.ListenConfig{Control: config.Control, KeepAlive: config.KeepAlive, KeepAliveConfig: config.KeepAliveConfig}
	return lc.Listen(ctx, network, address)
}

// onEachEngine runs test once for each engine, as a subtest with the engine's name, and checks each
// for leaks.
func onEachEngine(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range engines {
		onEngine(t, e, test)
	}
}

func onEngine(t *testing.T, e engine, test func(t *testing.T, e engine)) {
	t.Run(e.name, func(t *testing.T) {
		testnet.NoLeaks(t)
		test(t, e)
	})
}

// onEachEngineAndKind is onEachEngine for every kind of listener.
func onEachEngineAndKind(t *testing.T, test func(t *testing.T, e engine, kind testnet.Kind)) {
	onEachEngine(t, onEachKindOf(test))
}

// onEachKindOf returns a test of an engine that is test for every kind of listener.
func onEachKindOf(test func(t *testing.T, e engine, kind testnet.Kind)) func(*testing.T, engine) {
	return func(t *testing.T, e engine) {
		testnet.OnEachKind(t, func(t *testing.T, kind testnet.Kind) { test(t, e, kind) })
	}
}

// percoreIsNet reports whether percore's listeners are net's in this build, as on all systems other
// than Linux.
func percoreIsNet() bool {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return false
	}
	defer ln.Close()
	l, ok := ln.(*percore.Listener)
	return !ok || l.Stats().Sockets == 0
}
