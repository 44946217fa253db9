package rpc

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethods lists the methods of a connection that hides those of the one below: no byte is held back.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[bareConn](t, testnet.MethodTable{
		Own: "NetConn",
		Promoted: map[string]string{
			"nothing is held back": "Close LocalAddr Read RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline Write",
		},
	})
}
