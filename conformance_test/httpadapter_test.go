package conformance

import (
	"net/http"
	"testing"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/webserver"
)

// wrap returns the server that stands for srv on the engine.
func (e engine) wrap(srv *http.Server) webserver.Server {
	if e.serve != nil {
		return e.serve(srv)
	}
	return srv
}

// parkingEngine is percore with httpadapter, which parks each connection as soon
// as it waits for a request: as often as can be.
func parkingEngine() engine {
	e := percoreEngine
	e.name = "httpadapter"
	e.serve = func(srv *http.Server) webserver.Server { return httpadapter.Wrap(srv, httpadapter.ParkAfter(0)) }
	return e
}

// onEachWebEngine is onEachEngine with httpadapter as one more.
func onEachWebEngine(t *testing.T, test func(t *testing.T, e engine)) {
	onEachEngine(t, test)
	onEngine(t, parkingEngine(), test)
}

// onEachWebEngineAndKind is onEachEngineAndKind with httpadapter as one more.
func onEachWebEngineAndKind(t *testing.T, test func(t *testing.T, e engine, kind testnet.Kind)) {
	onEachEngineAndKind(t, test)
	onEngine(t, parkingEngine(), func(t *testing.T, e engine) { onEachKind(t, e, test) })
}

// playWebScripts is playScripts with httpadapter as one more engine to compare
// with net.
func playWebScripts(t *testing.T, scripts []script) {
	playScripts(t, scripts)
	t.Run("httpadapter", func(t *testing.T) { playScriptsOn(t, parkingEngine(), scripts) })
}
