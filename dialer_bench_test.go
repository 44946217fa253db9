package percore

import (
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// BenchmarkDial opens and closes a connection: package net's, which is what
// percore's starts as; percore's, on loops that run anyway, the difference being
// the price of taking it over; and on the default group, which starts and ends
// with each.
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
