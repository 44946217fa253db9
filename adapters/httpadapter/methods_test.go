package httpadapter

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/testnet"
)

// TestMethods classifies all methods of the wrappers. Methods that read, or wait for something to
// read, begin with the bytes held back. Methods that write must not reach a connection that is
// about to be parked.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[*conn](t, testnet.MethodTable{
		Own: `AttachTo CancelOnReadable Close CloseRead CloseWrite File NetConn NotifyReadable OnReadable
			Read ReadFrom ReadReady SetDeadline SetLinger SetNoWait SetReadDeadline SetWriteDeadline
			SyscallConn TryRead Write WriteBuffers WriteTo`,
		Promoted: map[string]string{
			"they are the same for a lease":                "LocalAddr Loop MultipathTCP ProxyTLVs RemoteAddr RemoteAddrPort TCPInfo",
			"options of the socket that last with it only": "SetKeepAlive SetKeepAliveConfig SetKeepAlivePeriod SetNoDelay SetReadBuffer SetWriteBuffer",
		},
	})
	testnet.CheckMethods[heldConn](t, testnet.MethodTable{
		Promoted: map[string]string{"from conn, which see; but not NetConn": `AttachTo CancelOnReadable Close
			CloseRead CloseWrite File NotifyReadable OnReadable Read ReadFrom ReadReady SetDeadline
			SetLinger SetNoWait SetReadDeadline SetWriteDeadline SyscallConn TryRead Write WriteBuffers WriteTo LocalAddr Loop MultipathTCP ProxyTLVs RemoteAddr RemoteAddrPort TCPInfo SetKeepAlive
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

// net/http looks for methods of its connections. The probe's connections have the methods of a
// lease, except percore's own methods, which no package of the standard library knows.
func TestProbeHasMethodsOfLeases(t *testing.T) {
	ours := []string{
		"OnReadable", "NotifyReadable", "CancelOnReadable",
		"AttachTo", "ReadReady", "WriteBuffers", "Loop", "ProxyTLVs",
	}
	plain, overTLS := probe.Leases()
	for _, pair := range []struct{ lease, probed any }{{&conn{}, plain}, {&tlsConn{}, overTLS}} {
		lease, probed := methods(pair.lease), methods(pair.probed)
		for name, signature := range lease {
			if !slices.Contains(ours, name) && probed[name] != signature {
				t.Errorf("%T: %s%s is missing, which %T has", pair.probed, name, signature, pair.lease)
			}
		}
		for name := range probed {
			if lease[name] == "" {
				t.Errorf("%T has %s, and %T hasn't", pair.probed, name, pair.lease)
			}
		}
	}
}

// methods returns the signatures of the exported methods of v.
func methods(v any) map[string]string {
	all := make(map[string]string)
	for m := range reflect.TypeOf(v).Methods() {
		signature := strings.SplitN(m.Type.String(), ")", 2)
		_, parameters, _ := strings.Cut(signature[0], ",") // without the receiver
		all[m.Name] = "(" + strings.TrimSpace(parameters) + ")" + signature[1]
	}
	return all
}
