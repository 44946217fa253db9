package moving

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestMethods decides on all methods of a conn, which counts the bytes that are written.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*conn](t, testnet.MethodTable{
		Own: "Armed Close Leave NetConn Start Write",
		Promoted: map[string]string{
			"they do not write": "LocalAddr Read RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline",
		},
	})
}
