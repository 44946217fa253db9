package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// variantVariable names the variant of percore's engine that the whole package tests instead of the
// default:
//
//	PERCORE_TEST_VARIANT=thread go test ./conformance_test
const variantVariable = "PERCORE_TEST_VARIANT"

// A variant is a way to configure the engine. It must not change what callers see.
type variant struct {
	name   string
	loops  loop.Config
	config percore.ListenConfig
}

var variants = []variant{
	{name: "thread", loops: loop.Config{Strategy: loop.Thread}},
	{name: "pinned", loops: loop.Config{Strategy: loop.Thread, Pin: true}},
	{name: "oneloop", loops: loop.Config{Loops: 1}},
	{name: "manyloops", loops: loop.Config{Loops: 7}},
	{name: "leastloaded", config: percore.ListenConfig{LeastLoaded: true}},
	{name: "netbuffers", config: percore.ListenConfig{NetBuffers: true}},
}

// start starts the variant's loops and returns the engine that runs on them.
func (v variant) start() (e engine, stop func(), err error) {
	group, err := loop.NewGroup(v.loops)
	if err != nil {
		return engine{}, nil, err
	}
	// A loop that starts within a test and keeps running would count as a leak of the test.
	for i := range group.Len() {
		group.Loop(i).Submit(func() {})
	}
	with := func(config net.ListenConfig) *percore.ListenConfig {
		lc := v.config
		lc.Group = group
		lc.Control, lc.KeepAlive, lc.KeepAliveConfig = config.Control, config.KeepAlive, config.KeepAliveConfig
		return &lc
	}
	e = engine{
		name: "percore",
		listen: func(network, address string) (net.Listener, error) {
			return with(net.ListenConfig{}).Listen(context.Background(), network, address)
		},
		configured: func(ctx context.Context, config net.ListenConfig, network, address string) (net.Listener, error) {
			return with(config).Listen(ctx, network, address)
		},
		fileListener: with(net.ListenConfig{}).FileListener,
	}
	if v.config.NetBuffers {
		e = e.onTCP()
	}
	return e, group.Close, nil
}

// onTCP is e with "tcp" instead of "tcp4" and "tcp6", where that makes no other difference. With
// NetBuffers, the errors of writes always name "tcp".
func (e engine) onTCP() engine {
	loopback := func(network, address string) string {
		if strings.HasPrefix(address, "127.") || strings.HasPrefix(address, "[::1]:") {
			return strings.TrimRight(network, "46")
		}
		return network
	}
	listen, configured := e.listen, e.configured
	e.listen = func(network, address string) (net.Listener, error) {
		return listen(loopback(network, address), address)
	}
	e.configured = func(ctx context.Context, config net.ListenConfig, network, address string) (net.Listener, error) {
		return configured(ctx, config, loopback(network, address), address)
	}
	return e
}

// useVariant makes the package test the variant that the environment names.
func useVariant() {
	name := os.Getenv(variantVariable)
	if name == "" {
		return
	}
	for _, v := range variants {
		if v.name != name {
			continue
		}
		e, _, err := v.start() // its loops run as long as the process
		if err != nil {
			fmt.Fprintf(os.Stderr, "engine variant %s: %v\n", name, err)
			os.Exit(2)
		}
		percoreEngine = e
		if v.config.NetBuffers {
			netEngine = netEngine.onTCP()
		}
		engines[0], engines[1] = netEngine, e
		return
	}
	fmt.Fprintf(os.Stderr, "%s=%s: no such variant of the engine\n", variantVariable, name)
	os.Exit(2)
}

// TestVariants runs the suites that find the most in the shortest time on every variant of the engine.
func TestVariants(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			e, stop, err := v.start()
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip("the engine does not run on this platform")
			}
			if err != nil {
				t.Fatalf("starting: %v", err)
			}
			t.Cleanup(stop)
			t.Run("nettest", func(t *testing.T) { nettest.TestConn(t, makePipe(t, e, testnet.TCP4, "server", plain)) })
			t.Run("random programs", func(t *testing.T) {
				reference := netEngine
				if v.config.NetBuffers {
					reference = reference.onTCP()
				}
				runRandom(t, 200, rounds(100), func(t *testing.T, program []byte) { comparePrograms(t, reference, e, program) })
			})
			t.Run("conn", func(t *testing.T) { stressConn(t, e) })
			t.Run("listener", func(t *testing.T) { stressListener(t, e) })
			t.Run("aborted reads", func(t *testing.T) { stressAbortedReads(t, e) })
			t.Run("deadlines", func(t *testing.T) { stressDeadlines(t, e) })
		})
	}
}
