//go:build !percore_net

package percore

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// benchmarkListeners are the listeners to compare.
var benchmarkListeners = []struct {
	name   string
	listen testnet.ListenFunc
}{
	{"net", func(network, address string) (net.Listener, error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // which makes every call more expensive, and percore doesn't ask for it
		return lc.Listen(context.Background(), network, address)
	}},
	{"percore", Listen},
}

// buffersListeners are the ways of writing slices to compare.
var buffersListeners = []struct {
	name   string
	listen testnet.ListenFunc
	write  func(v net.Buffers, c net.Conn) (int64, error)
}{
	{"net", benchmarkListeners[0].listen, func(v net.Buffers, c net.Conn) (int64, error) { return v.WriteTo(c) }},
	{"percore", Listen, func(v net.Buffers, c net.Conn) (int64, error) { return v.WriteTo(c) }},
	{"percore,NetBuffers", listenNetBuffers, func(v net.Buffers, c net.Conn) (int64, error) { return v.WriteTo(c) }},
	{"percore,Buffers", Listen, func(v net.Buffers, c net.Conn) (int64, error) { return (*Buffers)(&v).WriteTo(c) }},
}

// BenchmarkNetBuffers writes slices with WriteTo and waits until the peer, in the same process,
// reports that it has read them all. cpu-µs/op covers the process, with both ends.
func BenchmarkNetBuffers(b *testing.B) {
	for _, shape := range []struct{ slices, size int }{{1024, 512}, {16, 256}, {4, 64}, {1, 128}} {
		for _, l := range buffersListeners {
			b.Run(fmt.Sprintf("%dx%d/%s", shape.slices, shape.size, l.name), func(b *testing.B) {
				server, client := testnet.Pair(b, l.listen, testnet.TCP4)
				data := make([]byte, shape.slices*shape.size)
				go func() {
					p := make([]byte, 64<<10)
					for got := 0; ; {
						n, err := client.Read(p)
						if err != nil {
							return
						}
						for got += n; got >= len(data); got -= len(data) {
							client.Write(p[:1])
						}
					}
				}()
				v := make(net.Buffers, shape.slices)
				answer := make([]byte, 1)
				before := testnet.CPUTime()
				for b.Loop() {
					for i := range v {
						v[i] = data[i*shape.size : (i+1)*shape.size]
					}
					if _, err := l.write(v, server); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(server, answer); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((testnet.CPUTime()-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
			})
		}
	}
}

// BenchmarkNetBuffersAccept opens and closes a connection. It shows what NetBuffers adds to that.
func BenchmarkNetBuffersAccept(b *testing.B) {
	for _, l := range buffersListeners[:3] {
		b.Run(l.name, func(b *testing.B) {
			ln := testnet.Listen(b, l.listen, testnet.TCP4)
			before := testnet.CPUTime()
			for b.Loop() {
				client, err := net.Dial("tcp4", ln.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				server, err := ln.Accept()
				if err != nil {
					b.Fatal(err)
				}
				server.Close()
				client.Close()
			}
			b.ReportMetric(float64((testnet.CPUTime()-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
		})
	}
}

// BenchmarkNetBuffersIdle measures the heap that an idle connection takes. That includes the
// client's end from package net, which is the same in all arms.
func BenchmarkNetBuffersIdle(b *testing.B) {
	const conns = 2000
	for _, l := range buffersListeners[:3] {
		b.Run(l.name, func(b *testing.B) {
			ln := testnet.Listen(b, l.listen, testnet.TCP4)
			for b.Loop() {
				before, fds := testnet.HeapBytes(), testnet.CountFDs()
				var ends [2 * conns]net.Conn
				for i := range conns {
					ends[2*i], ends[2*i+1] = testnet.Connect(b, ln)
				}
				b.ReportMetric(float64(int64(testnet.HeapBytes())-int64(before))/conns, "heap-B/conn")
				b.ReportMetric(float64(testnet.CountFDs()-fds)/conns, "descriptors/conn")
				for _, c := range ends {
					c.Close()
				}
			}
		})
	}
}

// BenchmarkNetBuffersEcho answers 128 bytes on each of 64 connections, each an op. It measures the
// cost of the runtime's poller watching the connections, too.
func BenchmarkNetBuffersEcho(b *testing.B) {
	const conns, size = 64, 128
	for _, l := range buffersListeners[:3] {
		b.Run(l.name, func(b *testing.B) {
			ln := testnet.Listen(b, l.listen, testnet.TCP4)
			var clients [conns]net.Conn
			for i := range clients {
				var server net.Conn
				server, clients[i] = testnet.Connect(b, ln)
				go func() {
					p := make([]byte, 4096)
					for {
						n, err := server.Read(p)
						if err != nil {
							return
						}
						server.Write(p[:n])
					}
				}()
			}
			p := make([]byte, size)
			before, ops := testnet.CPUTime(), 0
			for b.Loop() {
				for _, c := range clients {
					c.Write(p)
				}
				for _, c := range clients {
					if _, err := io.ReadFull(c, p); err != nil {
						b.Fatal(err)
					}
				}
				ops += conns
			}
			b.ReportMetric(float64((testnet.CPUTime()-before).Nanoseconds())/1e3/float64(ops), "cpu-µs/echo")
		})
	}
}
