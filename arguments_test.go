package percore_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	l := ln.(*percore.Listener)
	client, err := percore.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.AcceptConn()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := client.Write(make([]byte, 64)); err != nil { // for the reads
		t.Fatal(err)
	}
	ctx := context.Background()
	addr := l.Addr().String()
	var d percore.Dialer
	var lc percore.ListenConfig
	lend, takeBack := func() []byte { return make([]byte, 1) }, func() {}
	table := map[string]testnet.Call{
		"Dial":            {Func: percore.Dial},
		"DialTimeout":     {Func: percore.DialTimeout},
		"FileListener":    {Func: percore.FileListener, Says: "invalid argument"},
		"FileListeners":   {Func: percore.FileListeners, Says: "invalid argument"},
		"Listen":          {Func: percore.Listen},
		"ProxyTLVs":       {Func: percore.ProxyTLVs, Nils: "c"},
		"RegisterAdapter": {Func: percore.RegisterAdapter, Args: []any{"arguments"}},

		"Buffers.Read":    {Func: (&percore.Buffers{[]byte("x")}).Read},
		"Buffers.WriteTo": {Func: (&percore.Buffers{[]byte("x")}).WriteTo},

		"Conn.NotifyReadable":     {Func: c.NotifyReadable},
		"Conn.OnReadable":         {Func: c.OnReadable},
		"Conn.Read":               {Func: c.Read},
		"Conn.ReadFrom":           {Func: c.ReadFrom},
		"Conn.ReadReady":          {Func: c.ReadReady, Args: []any{lend, takeBack}},
		"Conn.SetDeadline":        {Func: c.SetDeadline},
		"Conn.SetKeepAlive":       {Func: c.SetKeepAlive},
		"Conn.SetKeepAliveConfig": {Func: c.SetKeepAliveConfig},
		"Conn.SetKeepAlivePeriod": {Func: c.SetKeepAlivePeriod},
		"Conn.SetLinger":          {Func: c.SetLinger},
		"Conn.SetNoDelay":         {Func: c.SetNoDelay},
		"Conn.SetNoWait":          {Func: c.SetNoWait},
		"Conn.SetReadBuffer":      {Func: c.SetReadBuffer},
		"Conn.SetReadDeadline":    {Func: c.SetReadDeadline},
		"Conn.SetWriteBuffer":     {Func: c.SetWriteBuffer},
		"Conn.SetWriteDeadline":   {Func: c.SetWriteDeadline},
		"Conn.TryRead":            {Func: c.TryRead},
		"Conn.Write":              {Func: c.Write},
		"Conn.WriteBuffers":       {Func: c.WriteBuffers},
		"Conn.WriteTo":            {Func: c.WriteTo},

		"Dialer.Dial":            {Func: d.Dial},
		"Dialer.DialContext":     {Func: d.DialContext, Args: []any{nil, "tcp", addr}, Says: "nil context"},
		"Dialer.DialIP":          {Func: d.DialIP, Args: []any{nil, "ip4:icmp", netip.Addr{}, netip.AddrFrom4([4]byte{127, 0, 0, 1})}, Says: "nil context"},
		"Dialer.DialTCP":         {Func: d.DialTCP, Args: []any{nil, "tcp", netip.AddrPort{}, netip.MustParseAddrPort(addr)}, Says: "nil context"},
		"Dialer.DialTarget":      {Func: d.DialTarget, Args: []any{nil, addr}, Says: "nil context"},
		"Dialer.DialUDP":         {Func: d.DialUDP, Args: []any{nil, "udp", netip.AddrPort{}, netip.MustParseAddrPort(addr)}, Says: "nil context"},
		"Dialer.DialUnix":        {Func: d.DialUnix, Args: []any{ctx, "unix"}, Nils: "laddr raddr", Says: "nil context"},
		"Dialer.SetMultipathTCP": {Func: new(percore.Dialer).SetMultipathTCP},

		"ListenConfig.FileListener":    {Func: lc.FileListener, Says: "invalid argument"},
		"ListenConfig.FileListeners":   {Func: lc.FileListeners, Says: "invalid argument"},
		"ListenConfig.Listen":          {Func: lc.Listen, Args: []any{nil, "tcp", "127.0.0.1:0"}, Nils: "ctx"}, // as net.ListenConfig's, with an address
		"ListenConfig.SetMultipathTCP": {Func: new(percore.ListenConfig).SetMultipathTCP},

		"Listener.SetDeadline":      {Func: l.SetDeadline},
		"Listener.SetUnlinkOnClose": {Func: l.SetUnlinkOnClose},
	}
	testnet.CheckArguments(t, table)
	testnet.CheckNegatives(t, func(lc percore.ListenConfig) error {
		ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err == nil {
			ln.Close()
		}
		return err
	}, "KeepAlive")
	testnet.CheckNegatives(t, func(p percore.ProxyProtocol) error {
		p.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		_, err := (&percore.ListenConfig{ProxyProtocol: &p}).Listen(ctx, "tcp", "127.0.0.1:0")
		return err
	}, "")
}
