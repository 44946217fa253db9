package conformance

import (
	"net/http"
	"testing"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// wrap returns the server that replaces srv on the engine.
func (e engine) wrap(srv *http.Server) testnet.WebServer {
	if e.serve != nil {
		return e.serve(srv)
	}
	return srv
}

// parkingEngine is percore with httpadapter. It parks each connection as soon as it waits for a
// request, so it parks as often as possible.
func parkingEngine() engine {
	e := percoreEngine
	e.name = "httpadapter"
	e.serve = func(srv *http.Server) testnet.WebServer {
		return httpadapter.Wrap(srv, httpadapter.ParkAfter(0), httpadapter.NetHTTP1(), httpadapter.NetHTTP2())
	}
	return e
}

// fastPathEngine is percore with httpadapter's fast path. The fast path leaves the requests that it
// doesn't take to net/http.
func fastPathEngine() engine {
	e := percoreEngine
	e.name = "fast path"
	e.serve = func(srv *http.Server) testnet.WebServer { return httpadapter.Wrap(srv, httpadapter.NetHTTP2()) }
	return e
}

// adapterEngines are the engines of httpadapter.
func adapterEngines() []engine { return []engine{parkingEngine(), fastPathEngine()} }

// onEachWebEngine is onEachEngine that also runs httpadapter's engines.
func onEachWebEngine(t *testing.T, test func(t *testing.T, e engine)) {
	onEachEngine(t, test)
	for _, e := range adapterEngines() {
		onEngine(t, e, test)
	}
}

// onEachWebEngineAndKind is onEachEngineAndKind that also runs httpadapter's engines.
func onEachWebEngineAndKind(t *testing.T, test func(t *testing.T, e engine, kind testnet.Kind)) {
	onEachEngineAndKind(t, test)
	for _, e := range adapterEngines() {
		onEngine(t, e, onEachKindOf(test))
	}
}

// playWebScripts is playScripts that also compares httpadapter's engines with net.
func playWebScripts(t *testing.T, scripts []script) {
	playScripts(t, scripts)
	for _, e := range adapterEngines() {
		t.Run(e.name, func(t *testing.T) { playScriptsOn(t, e, scripts) })
	}
}
