package reactor

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethods decides on all methods of a connection with bytes that are still to be sent: all other
// bytes come after them, and reads find their loss. The same for a connection below TLS.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*sendingConn](t, testnet.MethodTable{
		Own: `Close CloseWrite File Read ReadFrom ReadReady SetDeadline SetWriteDeadline SyscallConn
			TryRead Write WriteBuffers WriteTo`,
		Promoted: map[string]string{
			"they wait for something to read":             "CancelOnReadable CloseRead NotifyReadable OnReadable SetNoWait SetReadDeadline",
			"they tell":                                   "LocalAddr Loop MultipathTCP ProxyTLVs RemoteAddr RemoteAddrPort TCPInfo",
			"options of the socket, which keep the order": "SetKeepAlive SetKeepAliveConfig SetKeepAlivePeriod SetLinger SetNoDelay SetReadBuffer SetWriteBuffer",
		},
	})
	testnet.CheckMethods[sendingRawConn](t, testnet.MethodTable{
		Own: "Write",
		Promoted: map[string]string{
			"it reads": "Read",
			"the caller knows what it does with the descriptor": "Control",
		},
	})
	testnet.CheckMethods[*lower](t, testnet.MethodTable{
		Own: "Close Read SetWriteDeadline Write",
		Promoted: map[string]string{
			"crypto/tls calls them in blocking code only": "SetDeadline SetReadDeadline",
			"they tell": "LocalAddr RemoteAddr",
		},
	})
	testnet.CheckMethods[controlOnly](t, testnet.MethodTable{
		Own:      "Read Write",
		Promoted: map[string]string{"it is for options of the socket": "Control"},
	})
}
