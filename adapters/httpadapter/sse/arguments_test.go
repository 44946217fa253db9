package sse

import (
	"net/http/httptest"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	h := NewHub(Config{})
	h.Close()
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"NewHub":        {Func: NewHub},
		"Event.Append":  {Func: Event{}.Append, Nils: "b"},
		"Hub.Broadcast": {Func: h.Broadcast},
		"Hub.Serve":     {Func: h.Serve, Args: []any{w, r}},
		"Hub.ServeHTTP": {Func: h.ServeHTTP, Args: []any{w, r}},
	})
}
