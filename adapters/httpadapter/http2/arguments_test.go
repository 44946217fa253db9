package http2

import (
	"net/http"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	testnet.CheckArguments(t, map[string]testnet.Call{
		"New":                 {Func: New},
		"Transport.RoundTrip": {Func: New(new(http.Transport)).RoundTrip},
	})
}
