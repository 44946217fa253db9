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

// adapterEngine is percore with httpadapter.
func adapterEngine() engine {
	e := percoreEngine
	e.name = "httpadapter"
	e.serve = func(srv *http.Server) testnet.WebServer { return httpadapter.Wrap(srv) }
	return e
}

// adapterEngines are the engines of httpadapter.
func adapterEngines() []engine { return []engine{adapterEngine()} }

// onEachWebEngine is onEachEngine that also runs httpadapter's engines.
func onEachWebEngine(t *testing.T, test func(t *testing.T, e engine)) {
	onEachEngine(t, test)
	for _, e := range adapterEngines() {
		onEngine(t, e, test)
	}
}

// playWebScripts is playScripts that also compares httpadapter's engines with net.
func playWebScripts(t *testing.T, scripts []script) {
	playScripts(t, onTwoKinds(scripts))
	for _, e := range adapterEngines() {
		t.Run(e.name, func(t *testing.T) { playScriptsOn(t, e, scripts) })
	}
}
