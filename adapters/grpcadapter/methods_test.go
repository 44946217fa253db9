package grpcadapter

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethods lists all methods of the wrapper of connections, and checks that it holds no byte back
// between two calls.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*readyConn](t, testnet.MethodTable{
		Own: "ReadOnReady",
		Promoted: map[string]string{"nothing is held back": `CancelOnReadable Close CloseRead CloseWrite File LocalAddr Loop
			MultipathTCP NotifyReadable OnReadable ProxyTLVs Read ReadFrom ReadReady RemoteAddr RemoteAddrPort
			SetDeadline SetKeepAlive SetKeepAliveConfig SetKeepAlivePeriod SetLinger SetNoDelay SetNoWait
			SetReadBuffer SetReadDeadline SetWriteBuffer SetWriteDeadline SyscallConn TCPInfo TryRead Write
			WriteBuffers WriteTo`},
	})
}
