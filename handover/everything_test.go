package handover

import (
	"context"
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values. TestNilArguments has what these are refused
// with.
func TestArguments(t *testing.T) {
	ctx := context.Background()
	s := new(Successor)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"Give":  {Func: Give, Args: []any{ctx, (*net.UnixConn)(nil)}, Nils: "servers"},
		"Start": {Func: Start},
		"Take":  {Func: Take, Args: []any{ctx}},

		"Conns.Add":          {Func: new(Conns).Add},
		"Conns.Carry":        {Func: new(Conns).Carry, Args: []any{"name"}},
		"Conns.Shutdown":     {Func: new(Conns).Shutdown},
		"Service.Run":        {Func: new(Service).Run},
		"Successor.Carry":    {Func: s.Carry},
		"Successor.Drop":     {Func: s.Drop},
		"Successor.Listener": {Func: s.Listener, Args: []any{"web"}, Nils: "lc"},
		"Successor.Ready":    {Func: s.Ready},
		"Successor.State":    {Func: s.State},
	})
}
