package wsadapter

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/percore/percore/handover"
	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	b.Close() // so that reads end
	c := New(a)
	conns := new(handover.Conns)
	g := NewGroup(conns, "group", nil)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"New":        {Func: New},
		"NewGroup":   {Func: NewGroup, Args: []any{conns}, Nils: "restorer"},
		"NewUpgrade": {Func: NewUpgrade},
		"Start":      {Func: Start[int], Args: []any{c}, Says: "Start has no connection"},

		"Conn.Read":           {Func: c.Read},
		"Group.NewUpgrade":    {Func: g.NewUpgrade, Args: []any{httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)}},
		"Upgrade.WriteHeader": {Func: NewUpgrade(httptest.NewRecorder()).WriteHeader, Says: "invalid WriteHeader code"},
	})
}
