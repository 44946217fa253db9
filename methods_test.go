package percore

import (
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestMethodSets checks that our types have all methods that a library may look for on package
// net's types, with the same signatures.
func TestMethodSets(t *testing.T) {
	for _, test := range []struct {
		ours, nets any
		// without lists methods that can't be there: they return net's own types,
		// which only package net can make around a socket that is not its own; or a netConn, which
		// writes with package net, can't have them.
		without map[string]bool
	}{
		{(*Conn)(nil), (*net.TCPConn)(nil), nil},
		{(*netConn)(nil), (*net.TCPConn)(nil), nil},
		{(*netConn)(nil), (*Conn)(nil), map[string]bool{"Loop": true}},
		{(*Listener)(nil), (*net.TCPListener)(nil), map[string]bool{"AcceptTCP": true}},
		{(*Listener)(nil), (*net.UnixListener)(nil), map[string]bool{"AcceptUnix": true}},
		{(*Dialer)(nil), (*net.Dialer)(nil), nil},
	} {
		ours, nets := reflect.TypeOf(test.ours), reflect.TypeOf(test.nets)
		ownTypes := strings.NewReplacer("*net.TCPConn", "*percore.Conn", "*net.UnixConn", "*percore.Conn")
		for i := range nets.NumMethod() {
			want := nets.Method(i)
			got, ok := ours.MethodByName(want.Name)
			switch {
			case ok == test.without[want.Name]:
				t.Errorf("%v has %s: got %t, want %t as %v has it", ours, want.Name, ok, !ok, nets)
			case ok && signature(got) != ownTypes.Replace(signature(want)):
				t.Errorf("%v: %s is %s, want %s as %v has it", ours, want.Name, signature(got), signature(want), nets)
			}
		}
	}
}

// signature is a method's type without its receiver.
func signature(m reflect.Method) string {
	var in, out []reflect.Type
	for i := 1; i < m.Type.NumIn(); i++ {
		in = append(in, m.Type.In(i))
	}
	for i := range m.Type.NumOut() {
		out = append(out, m.Type.Out(i))
	}
	return reflect.FuncOf(in, out, m.Type.IsVariadic()).String()
}

// TestWrappers classifies all methods of the package net connections that wrappers contain.
func TestWrappers(t *testing.T) {
	testnet.CheckMethods[*netConn](t, testnet.MethodTable{
		Own: `CancelOnReadable Close CloseRead File LocalAddr NotifyReadable OnReadable Read ReadReady
			ProxyTLVs RemoteAddr RemoteAddrPort SetDeadline SetNoWait SetReadDeadline SyscallConn TCPInfo TryRead WriteBuffers WriteTo`,
		Promoted: map[string]string{
			"the write half's": "CloseWrite ReadFrom SetWriteDeadline Write",
			"options of the socket, which both halves share": `MultipathTCP SetKeepAlive SetKeepAliveConfig
				SetKeepAlivePeriod SetLinger SetNoDelay SetReadBuffer SetWriteBuffer`,
		},
	})
	testnet.CheckMethods[netRawConn](t, testnet.MethodTable{
		Own:      "Write",
		Promoted: map[string]string{"the read half's": "Control Read"},
	})
}
