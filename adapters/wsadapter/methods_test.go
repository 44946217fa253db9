package wsadapter

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethods decides on all methods of a Conn, which counts the bytes that are read, and makes some up.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*Conn](t, testnet.MethodTable{
		Own: "NetConn Read",
		Promoted: map[string]string{
			"they do not read": "Close LocalAddr RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline Write",
		},
	})
}
