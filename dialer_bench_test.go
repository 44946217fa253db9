package percore

import (
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// BenchmarkDial opens and closes a connection in three ways. The first is package net's, which
// percore's starts as. The second is percore's on running loops; the difference is the cost of
// taking the connection over. The third uses the default group, which starts and ends with each
// connection.
func BenchmarkDial(b *testing.B) {
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		ways := []struct {
			name  string
			group bool
			dial  func(d *Dialer, network, address string) (net.Conn, error)
		}{
			{"net", false, func(_ *Dialer, network, address string) (net.Conn, error) { return net.Dial(network, address) }},
			{"percore", true, (*Dialer).Dial},
			{"percore, default group", false, (*Dialer).Dial},
		}
		for _, way := range ways {
			b.Run(string(kind)+"/"+way.name, func(b *testing.B) {
				ln := testnet.Listen(b, net.Listen, kind)
				go func() {
					for {
						c, err := ln.Accept()
						if err != nil {
							return
						}
						c.Close()
					}
				}()
				var d Dialer
				if way.group {
					g, err := loop.NewGroup(loop.Config{})
					if err != nil {
						b.Skip(err) // off Linux there are no loops
					}
					defer g.Close()
					d.Group = g
				}
				b.ReportAllocs()
				for b.Loop() {
					c, err := way.dial(&d, ln.Addr().Network(), ln.Addr().String())
					if err != nil {
						b.Fatal(err)
					}
					if tcp, ok := c.(interface{ SetLinger(int) error }); ok {
						tcp.SetLinger(0) // leaves no port in TIME_WAIT
					}
					c.Close()
				}
			})
		}
	}
}
