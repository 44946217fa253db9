package reactortls

import (
	"crypto/tls"
	"testing"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	config, _ := testnet.TLS(t)
	server := func(config *tls.Config, limits Limits) error {
		_, err := reactor.New(&handler{}, reactor.Config{TLS: Server(config, limits)})
		return err
	}
	testnet.CheckArguments(t, map[string]testnet.Call{
		"ConnectionState": {Func: ConnectionState},
		"Server":          {Func: server},
		"Wrap":            {Func: Wrap},
	})
	testnet.CheckNegatives(t, func(l Limits) error { return server(config, l) }, "")
	if err := server(&tls.Config{}, Limits{}); err == nil {
		t.Error("a tls.Config without a certificate: got no error")
	}
}
