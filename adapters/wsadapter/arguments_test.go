package wsadapter

import (
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	b.Close() // so that reads end
	c := New(a)
	testnet.CheckArguments(t, map[string]testnet.Call{
		"New":        {Func: New},
		"NewUpgrade": {Func: NewUpgrade},
		"Start":      {Func: Start[string], Args: []any{c, &program{}}, Says: "pass the Upgrade to the WebSocket library"},

		"Conn.Read": {Func: c.Read},
	})
}
