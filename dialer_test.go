package percore

import (
	"context"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// onEachDialKind runs test for each kind of connection, with a listener of package net that echoes.
func onEachDialKind(t *testing.T, test func(t *testing.T, ln net.Listener)) {
	for _, kind := range testnet.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			testnet.NoLeaks(t)
			ln := testnet.Listen(t, net.Listen, kind)
			go serveEcho(ln)
			test(t, ln)
		})
	}
}

// dialed returns the *Conn that dialing should have made, and closes it when the test ends.
func dialed(t testing.TB, c net.Conn, err error) *Conn {
	t.Helper()
	if err != nil {
		t.Fatalf("dialing: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	ours, ok := c.(*Conn)
	if !ok {
		t.Fatalf("got a %T, want a *Conn", c)
	}
	return ours
}

// TestDial connects in each of the ways that result in a stream.
func TestDial(t *testing.T) {
	onEachDialKind(t, func(t *testing.T, ln net.Listener) {
		network, address := ln.Addr().Network(), ln.Addr().String()
		var d Dialer
		ways := map[string]func() (net.Conn, error){
			"Dial":               func() (net.Conn, error) { return Dial(network, address) },
			"DialTimeout":        func() (net.Conn, error) { return DialTimeout(network, address, testnet.HangTimeout) },
			"Dialer.Dial":        func() (net.Conn, error) { return d.Dial(network, address) },
			"Dialer.DialContext": func() (net.Conn, error) { return d.DialContext(t.Context(), network, address) },
			"Dialer.DialTarget": func() (net.Conn, error) {
				if network == "unix" {
					return d.DialTarget(t.Context(), "unix:"+address)
				}
				return d.DialTarget(t.Context(), address)
			},
			"own type": func() (net.Conn, error) {
				if addr, ok := ln.Addr().(*net.UnixAddr); ok {
					return d.DialUnix(t.Context(), network, nil, addr)
				}
				return d.DialTCP(t.Context(), network, netip.AddrPort{}, netip.MustParseAddrPort(address))
			},
		}
		for way, dial := range ways {
			c, err := dial()
			conn := dialed(t, c, err)
			wantEcho(t, conn, "hello by way of "+way)
			if got := conn.RemoteAddr().String(); got != address {
				t.Errorf("%s: got the remote address %s, want %s", way, got, address)
			}
		}
	})
}

// TestDialOtherNetworks dials networks without streams, which are left to package net, and calls
// methods for a network that isn't theirs. TestDiffDial has more networks.
func TestDialOtherNetworks(t *testing.T) {
	testnet.NoLeaks(t)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	c, err := Dial("udp", udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.(*net.UDPConn); !ok {
		t.Errorf("udp: got a %T, want a *net.UDPConn", c)
	}
	var d Dialer
	byType, err := d.DialUDP(t.Context(), "udp", netip.AddrPort{}, netip.MustParseAddrPort(udp.LocalAddr().String()))
	if err != nil {
		t.Fatal(err)
	}
	byType.Close()

	uc, err := d.DialUnix(t.Context(), "unixgram", nil, &net.UnixAddr{Name: "x", Net: "unixgram"})
	if err == nil || !strings.Contains(err.Error(), "unixgram") || uc != nil {
		t.Errorf("DialUnix on unixgram: got %v, %v, want an error that says so", uc, err)
	}
	if c, err := d.DialTCP(t.Context(), "udp", netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:1")); c != nil || err == nil {
		t.Errorf("DialTCP on udp: got %v, %v, want an error", c, err)
	}
	if c, err := d.DialIP(t.Context(), "tcp", netip.Addr{}, netip.MustParseAddr("127.0.0.1")); c != nil || err == nil {
		t.Errorf("DialIP on tcp: got %v, %v, want an error", c, err)
	}
	if c, err := d.DialUnix(t.Context(), "tcp", nil, &net.UnixAddr{Name: "x", Net: "unix"}); c != nil || err == nil {
		t.Errorf("DialUnix on tcp: got %v, %v, want an error", c, err)
	}
}

// TestDialerMirrorsNet compares Dialer with package net's, whose next version may have more fields.
// TestMethodSets compares the methods.
func TestDialerMirrorsNet(t *testing.T) {
	ours, nets := reflect.TypeFor[Dialer](), reflect.TypeFor[net.Dialer]()
	leftOut := map[string]bool{"DualStack": true, "Cancel": true} // deprecated
	for _, want := range reflect.VisibleFields(nets) {
		if !want.IsExported() || leftOut[want.Name] {
			continue
		}
		if got, ok := ours.FieldByName(want.Name); !ok || got.Type != want.Type {
			t.Errorf("field %s: got %v, %t, want one of type %v as net.Dialer has it", want.Name, got.Type, ok, want.Type)
		}
	}
}

// TestDialerPassesOn checks that package net gets each option that it knows.
func TestDialerPassesOn(t *testing.T) {
	d := Dialer{
		Timeout:         time.Second,
		Deadline:        time.Unix(1, 0),
		LocalAddr:       &net.TCPAddr{Port: 1},
		FallbackDelay:   2 * time.Second,
		KeepAlive:       3 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Count: 4},
		Resolver:        &net.Resolver{PreferGo: true},
		Control:         func(string, string, syscall.RawConn) error { return nil },
		ControlContext:  func(context.Context, string, string, syscall.RawConn) error { return nil },
	}
	ours, nets := reflect.ValueOf(d), reflect.ValueOf(*d.netDialer())
	for _, field := range reflect.VisibleFields(ours.Type()) {
		if !field.IsExported() || field.Name == "Group" || field.Name == "NetBuffers" {
			continue
		}
		got, want := nets.FieldByName(field.Name), ours.FieldByName(field.Name)
		if want.IsZero() {
			t.Errorf("%s: the test does not set it", field.Name)
		}
		same := reflect.DeepEqual(got.Interface(), want.Interface())
		if field.Type.Kind() == reflect.Func {
			same = got.Pointer() == want.Pointer()
		}
		if !same {
			t.Errorf("%s: got %v, want %v", field.Name, got, want)
		}
	}

	var byNet net.Dialer
	if got, want := d.MultipathTCP(), byNet.MultipathTCP(); got != want {
		t.Errorf("MultipathTCP by default: got %t, want %t as net has it", got, want)
	}
	for _, use := range []bool{true, false} {
		d.SetMultipathTCP(use)
		if got, nets := d.MultipathTCP(), d.netDialer().MultipathTCP(); got != use || nets != use {
			t.Errorf("MultipathTCP set to %t: got %t, and %t with net", use, got, nets)
		}
	}
	t.Setenv("GODEBUG", "multipathtcp=1")
	var byDefault Dialer
	if !byDefault.MultipathTCP() {
		t.Error("MultipathTCP with GODEBUG=multipathtcp=1: got false, want true")
	}
	if d.MultipathTCP() {
		t.Error("MultipathTCP with GODEBUG=multipathtcp=1 and set to false: got true, want false")
	}
}

// TestParseTarget tests the addresses that grpc-go passes to a user's dialer.
func TestParseTarget(t *testing.T) {
	for _, test := range []struct{ target, network, address string }{
		{"localhost:80", "tcp", "localhost:80"},
		{"127.0.0.1:80", "tcp", "127.0.0.1:80"},
		{"[::1]:80", "tcp", "[::1]:80"},
		{":80", "tcp", ":80"},
		{"", "tcp", ""},
		{"unix", "tcp", "unix"}, // a host name without a port: net returns the error
		{"unix:relative/path", "unix", "relative/path"},
		{"unix:/absolute/path", "unix", "/absolute/path"},
		{"unix:///absolute/path", "unix", "/absolute/path"},
		{"unix://relative", "unix", "relative"},
		{"unix:@abstract", "unix", "@abstract"},
		{"unix:", "unix", ""},
		{"\x00abstract", "unix", "\x00abstract"},
	} {
		if network, address := parseTarget(test.target); network != test.network || address != test.address {
			t.Errorf("%q: got %q, %q, want %q, %q", test.target, network, address, test.network, test.address)
		}
	}
}
