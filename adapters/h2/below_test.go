package h2

import (
	"errors"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2/internal/below"
	"github.com/percore/percore/internal/testnet"
)

// If crypto/tls doesn't read as percore relies on, a goroutine reads from each connection over TLS.
func TestChangedTLS(t *testing.T) {
	testnet.NoLeaks(t)
	defer func(f func() error) { below.ProbeTLS = f }(below.ProbeTLS)
	below.ProbeTLS = func() error { return errors.New("it sings") }
	config := Config{}
	f := &fixture{t: t}
	config.TLS, f.tls = testnet.TLS(t)
	f.start(percore.Listen, HandlerFunc(hello), config)
	res, err := f.client().Get(f.url("/"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("got status %d", res.StatusCode)
	}
	for _, c := range f.server.conns() {
		if c.below.PC != nil {
			t.Error("a connection over TLS is read on its loop")
		}
	}
}
