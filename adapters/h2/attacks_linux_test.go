//go:build !percore_net

package h2

import (
	"bytes"
	"net"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestAttacksOfMany opens many connections that stop where it costs the server most. The memory of
// each stays within a bound, both of its ends included.
func TestAttacksOfMany(t *testing.T) {
	const n = 50
	for _, a := range []struct {
		name string
		tls  bool
		play func(p *frames.Peer)
		heap int // bytes, for each
	}{
		{"half a preface", false, func(p *frames.Peer) { p.Out = p.Out[:10] }, 4 << 10},
		{"a preface alone", false, func(p *frames.Peer) { p.Out = p.Out[:24] }, 4 << 10},
		{"half a frame", false, func(p *frames.Peer) {
			p.Frame(frames.Settings, 0, 0, make([]byte, 16380))
			p.Out = p.Out[:len(p.Out)-1]
		}, 40 << 10},
		{"half a header block", false, func(p *frames.Peer) {
			p.Frame(frames.Headers, 0, 1, []byte{0x82})
			for range 15 {
				p.Frame(9, 0, 1, append([]byte{0x40, 1, 'a', 0x7f, 0x81, 31}, bytes.Repeat([]byte("b"), 4096)...))
			}
		}, 200 << 10},
		{"half a header block of short fields", false, func(p *frames.Peer) {
			p.Frame(frames.Headers, 0, 1, []byte{0x82, 0x40, 1, 'a', 1, 'b'})
			p.Frame(9, 0, 1, bytes.Repeat([]byte{0xbe}, 16000))
		}, 80 << 10},
		{"full tables", false, func(p *frames.Peer) {
			block(p, 1, fields(120))
		}, 40 << 10},
		{"bodies of a byte", false, func(p *frames.Peer) {
			for id := uint32(1); id < 40; id += 2 {
				p.Request(id, false).Data(id, "x", false)
			}
		}, 400 << 10},
		{"half a handshake", true, func(p *frames.Peer) { p.Out = []byte{22, 3, 1, 1, 0, 1} }, 40 << 10},
	} {
		t.Run(a.name, func(t *testing.T) {
			stop := make(chan bool)
			config := Config{BeginTimeout: testnet.HangTimeout}
			if a.tls {
				config.TLS, _ = testnet.TLS(t)
			}
			f := serve(t, HandlerFunc(func(s *Stream, r *Request) {
				if !r.End {
					<-stop
				}
			}), config)
			defer close(stop)
			p := frames.NewPeer(t, nil)
			a.play(p)
			var clients []net.Conn
			before := testnet.HeapBytes()
			for range n {
				c := f.dial()
				clients = append(clients, c)
				if _, err := c.Write(p.Out); err != nil {
					t.Fatal(err)
				}
			}
			testnet.Eventually(t, "the server's reads", func() bool { return a.tls || f.server.readAll(n) })
			if !a.tls && f.server.conns()[0].below.PC == nil {
				t.Skip("a goroutine reads from each connection: run it without the build tag percore_net")
			}
			if held := (testnet.HeapBytes() - before) / n; held > a.heap && !race.Enabled {
				t.Errorf("got %d bytes for each connection, want %d at most", held, a.heap)
			} else {
				t.Logf("%d bytes for each connection", held)
			}
			runtime.KeepAlive(clients)
		})
	}
}

// fields returns a header block of fields with short names, which all go into the table.
func fields(n int) (b []byte) {
	for i := range n {
		b = append(b, 0x40, 2, 'a'+byte(i%26), 'a'+byte(i/26), 1, 'v')
	}
	return b
}

// readAll reports whether the server has n connections and has read all that was sent to them.
func (s *Server) readAll(n int) bool {
	conns := s.conns()
	for _, c := range conns {
		raw, err := c.below.NC.(syscall.Conn).SyscallConn()
		if err != nil {
			return false
		}
		unread := 0
		_ = raw.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		if unread > 0 || err != nil {
			return false
		}
	}
	return len(conns) == n
}
