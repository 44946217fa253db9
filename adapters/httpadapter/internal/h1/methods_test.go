package h1

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethods classifies all methods of the connections that hooks and hijackers get. The methods that
// wait for something to read are the worker's until the connection is hijacked.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*netConn](t, testnet.MethodTable{
		Own: `AttachTo CancelOnReadable Close NetConn NotifyReadable OnReadable Read SetDeadline SetNoWait
			SetReadDeadline Write WriteTo`,
		Promoted: map[string]string{
			"they tell":             "LocalAddr Loop MultipathTCP ProxyTLVs RemoteAddr RemoteAddrPort TCPInfo",
			"options of the socket": "SetKeepAlive SetKeepAliveConfig SetKeepAlivePeriod SetLinger SetNoDelay SetReadBuffer SetWriteBuffer",
			"the caller knows what it does to a connection that a worker has": `CloseRead CloseWrite File ReadFrom ReadReady SetWriteDeadline
				SyscallConn TryRead WriteBuffers`,
		},
	})
}

// Connections have the methods that net/http and handlers look for.
var _ interface {
	net.Conn
	io.ReaderFrom
	io.WriterTo
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	File() (*os.File, error)
	SetNoDelay(bool) error
	SetLinger(int) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
} = (*netConn)(nil)
