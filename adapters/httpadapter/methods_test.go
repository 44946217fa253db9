package httpadapter

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethods decides on all methods of the wrappers. Methods that read, or wait for something to read,
// begin with the bytes that are held back. Methods that write must not reach a connection that is about
// to be parked.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*conn](t, testnet.MethodTable{
		Own: `AtEnd AttachTo CancelOnReadable Close CloseRead CloseWrite File NetConn NotifyReadable OnReadable
			Read ReadBuffer ReadFrom ReadReady SetDeadline SetLinger SetNoWait SetReadDeadline SetWriteDeadline
			SyscallConn TryRead TryWrite TryWriteBuffers Unwatch Watch Write WriteBuffers WriteTo`,
		Promoted: map[string]string{
			"they are the same for a lease":                "LocalAddr Loop MultipathTCP RemoteAddr RemoteAddrPort",
			"options of the socket that last with it only": "SetKeepAlive SetKeepAliveConfig SetKeepAlivePeriod SetNoDelay SetReadBuffer SetWriteBuffer",
		},
	})
	testnet.CheckMethods[heldConn](t, testnet.MethodTable{
		Promoted: map[string]string{"from conn, which see; but not NetConn": `AtEnd AttachTo CancelOnReadable Close
			CloseRead CloseWrite File NotifyReadable OnReadable Read ReadBuffer ReadFrom ReadReady SetDeadline
			SetLinger SetNoWait SetReadDeadline SetWriteDeadline SyscallConn TryRead TryWrite TryWriteBuffers Unwatch
			Watch Write WriteBuffers WriteTo LocalAddr Loop MultipathTCP RemoteAddr RemoteAddrPort SetKeepAlive
			SetKeepAliveConfig SetKeepAlivePeriod SetNoDelay SetReadBuffer SetWriteBuffer`},
	})
	testnet.CheckMethods[*tlsConn](t, testnet.MethodTable{
		Own: "Close Read",
		Promoted: map[string]string{
			"they go through TLS, and the conn below it sees to the lease": "CloseWrite SetDeadline SetReadDeadline SetWriteDeadline Write",
			"the handshake is over":                 "ConnectionState Handshake HandshakeContext OCSPResponse VerifyHostname",
			"they tell, and read nothing":           "LocalAddr RemoteAddr",
			"below TLS, where nothing is held back": "NetConn",
		},
	})
	testnet.CheckMethods[heldRawConn](t, testnet.MethodTable{
		Own: "Read",
		Promoted: map[string]string{
			"the caller knows what it does with the descriptor": "Control",
			"nothing is held back of what is written":           "Write",
		},
	})
}
