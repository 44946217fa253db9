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

// playWebScripts is playScripts that also compares httpadapter with net.
func playWebScripts(t *testing.T, scripts []script) {
	playScripts(t, onTwoKinds(scripts))
	t.Run("httpadapter", func(t *testing.T) { playScriptsOn(t, adapterEngine(), scripts) })
}
