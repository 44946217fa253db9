package moving

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/percore/percore/handover"
	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	conns := new(handover.Conns)
	g := NewGroup(conns, "group", nil)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"NewGroup":         {Func: NewGroup, Args: []any{conns}, Nils: "restorer"},
		"Group.NewUpgrade": {Func: g.NewUpgrade, Args: []any{httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)}},
	})
}
