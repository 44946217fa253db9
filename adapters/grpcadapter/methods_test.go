package grpcadapter

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethods lists all methods of the wrappers, and checks that no wrapper holds a byte back
// between two calls.
func TestMethods(t *testing.T) {
	const nothingHeld = "nothing is held back"
	testnet.CheckMethods[*Conn](t, testnet.MethodTable{
		Own: "ReadOnReady",
		Promoted: map[string]string{nothingHeld: `CancelOnReadable Close CloseRead CloseWrite File LocalAddr Loop
			MultipathTCP NotifyReadable OnReadable ProxyTLVs Read ReadFrom ReadReady RemoteAddr RemoteAddrPort
			SetDeadline SetKeepAlive SetKeepAliveConfig SetKeepAlivePeriod SetLinger SetNoDelay SetNoWait
			SetReadBuffer SetReadDeadline SetWriteBuffer SetWriteDeadline SyscallConn TCPInfo TryRead Write
			WriteBuffers WriteTo`},
	})
	const netConn = "Close LocalAddr Read RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline Write"
	testnet.CheckMethods[*sparingConn](t, testnet.MethodTable{
		Own:      "ReadOnReady",
		Promoted: map[string]string{nothingHeld: netConn},
	})
	testnet.CheckMethods[*sparingSocketConn](t, testnet.MethodTable{
		Promoted: map[string]string{nothingHeld: netConn + " ReadOnReady", "channelz asks the socket": "SyscallConn"},
	})
}
