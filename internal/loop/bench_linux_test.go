package loop

import (
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// benchmarkEngines are the engines to measure, and whether a descriptor has
// company on its loop: alone, a goroutine that waits for it polls itself.
var benchmarkEngines = []struct {
	name    string
	config  Config
	company bool
}{
	{"nested", Config{Loops: 2}, true},
	{"nested-alone", Config{Loops: 2}, false},
	{"thread", Config{Loops: 2, Strategy: Thread}, true},
}

func benchmarkGroup(b *testing.B, config Config, company bool) *Group {
	b.Helper()
	g := newTestGroup(b, config)
	if company {
		for i := range g.Len() {
			newPair(b, g.Loop(i), overUnix)
			newPair(b, g.Loop(i), overUnix)
		}
	}
	return g
}

// BenchmarkPingPong sends 128 bytes there and back, on this package and on net.
func BenchmarkPingPong(b *testing.B) {
	for _, tr := range []transport{overTCP, overUnix} {
		b.Run("net/"+tr.name, func(b *testing.B) {
			x, y := tr.pair(b)
			c, peer := netConn(b, x), netConn(b, y)
			stop := echoConn(peer)
			defer stop()
			benchmarkPing(b, c)
		})
		for _, engine := range benchmarkEngines {
			b.Run(engine.name+"/"+tr.name, func(b *testing.B) {
				g := benchmarkGroup(b, engine.config, engine.company)
				f, peer := newFDPair(b, g.Loop(0), g.Loop(1), tr)
				stop := echo(peer)
				defer stop()
				benchmarkPing(b, f)
			})
		}
	}
}

// readWriter has the methods that net.Conn and FD share.
type readWriter interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
}

func benchmarkPing(b *testing.B, c readWriter) {
	b.Helper()
	p := make([]byte, 128)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(p); err != nil {
			b.Fatal(err)
		}
		for got := 0; got < len(p); {
			n, err := c.Read(p[got:])
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
}

// BenchmarkPingPongMany does it on 64 connections at once.
func BenchmarkPingPongMany(b *testing.B) {
	const conns = 64
	run := func(b *testing.B, dial func(i int) readWriter) {
		cs := make([]readWriter, conns)
		for i := range cs {
			cs[i] = dial(i)
		}
		b.ReportAllocs()
		b.ResetTimer()
		var running sync.WaitGroup
		for _, c := range cs {
			running.Go(func() {
				p := make([]byte, 128)
				for range b.N/conns + 1 {
					_, _ = c.Write(p)
					for got := 0; got < len(p); {
						n, err := c.Read(p[got:])
						if err != nil {
							b.Error(err)
							return
						}
						got += n
					}
				}
			})
		}
		running.Wait()
		b.StopTimer()
	}
	b.Run("net", func(b *testing.B) {
		run(b, func(int) readWriter {
			x, y := tcpPair(b)
			c, peer := netConn(b, x), netConn(b, y)
			b.Cleanup(echoConn(peer))
			return c
		})
	})
	for _, engine := range benchmarkEngines {
		if !engine.company {
			continue // with so many none is alone
		}
		b.Run(engine.name, func(b *testing.B) {
			g := benchmarkGroup(b, engine.config, false)
			run(b, func(i int) readWriter {
				f, peer := newFDPair(b, g.Loop(i%2), g.Loop(i%2), overTCP)
				b.Cleanup(echo(peer))
				return f
			})
		})
	}
}

func BenchmarkSetReadDeadline(b *testing.B) {
	deadlines := []struct {
		name string
		at   func(base time.Time, i int) time.Time
	}{
		{"later", func(base time.Time, i int) time.Time { return base.Add(time.Duration(i)) }},
		{"earlier", func(base time.Time, i int) time.Time { return base.Add(-time.Duration(i)) }},
		{"past", func(time.Time, int) time.Time { return time.Unix(1, 0) }},
		{"none", func(time.Time, int) time.Time { return time.Time{} }},
	}
	for _, d := range deadlines {
		run := func(b *testing.B, set func(time.Time) error) {
			base := time.Now().Add(24 * time.Hour)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				_ = set(d.at(base, i))
			}
		}
		b.Run(d.name+"/net", func(b *testing.B) {
			x, y := unixPair(b)
			defer unix.Close(y)
			run(b, netConn(b, x).SetReadDeadline)
		})
		b.Run(d.name+"/loop", func(b *testing.B) {
			g := newTestGroup(b, Config{Loops: 1})
			f, _ := newPair(b, g.Loop(0), overUnix)
			run(b, f.SetReadDeadline)
		})
	}
}

// BenchmarkOnReadable arms a callback and has it called, by data that comes
// after and by data that is there.
func BenchmarkOnReadable(b *testing.B) {
	for _, there := range []bool{false, true} {
		name := "data comes"
		if there {
			name = "data is there"
		}
		b.Run(name, func(b *testing.B) {
			g := benchmarkGroup(b, Config{Loops: 1}, true)
			f, peer := newPair(b, g.Loop(0), overTCP)
			called := make(chan error, 1)
			callback := func(err error) { called <- err }
			p := make([]byte, 16)
			b.ReportAllocs()
			for b.Loop() {
				if there {
					writePeer(b, peer, p[:1])
				}
				if err := f.OnReadable(callback); err != nil {
					b.Fatal(err)
				}
				if !there {
					writePeer(b, peer, p[:1])
				}
				if err := <-called; err != nil {
					b.Fatal(err)
				}
				if _, err := f.Read(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func writePeer(b *testing.B, c net.Conn, p []byte) {
	if _, err := c.Write(p); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSubmit hands tasks to a loop, from one goroutine and from many.
func BenchmarkSubmit(b *testing.B) {
	b.Run("one", func(b *testing.B) {
		g := newTestGroup(b, Config{Loops: 1})
		done := make(chan struct{}, 1)
		task := func() { done <- struct{}{} }
		b.ReportAllocs()
		for b.Loop() {
			g.Loop(0).Submit(task)
			<-done
		}
	})
	b.Run("many", func(b *testing.B) {
		g := newTestGroup(b, Config{Loops: 1})
		task := func() {}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				g.Loop(0).Submit(task)
			}
		})
	})
}

// BenchmarkOpenClose registers a socket and closes it.
func BenchmarkOpenClose(b *testing.B) {
	g := newTestGroup(b, Config{Loops: 1})
	b.ReportAllocs()
	for b.Loop() {
		x, y := unixPair(b)
		f, err := g.Loop(0).NewFD(x, Plain)
		if err != nil {
			b.Fatal(err)
		}
		_ = f.Close()
		unix.Close(y)
	}
}
