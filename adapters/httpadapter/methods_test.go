package httpadapter

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethods classifies all methods of the connections that hooks get from net/http. (Package h1 has
// the others.)
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*prefixedConn](t, testnet.MethodTable{
		Own:      "Read",
		Promoted: map[string]string{"they read nothing": "Close LocalAddr RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline Write"},
	})
}
