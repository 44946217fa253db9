package h2

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestAccept: a server of another protocol's says how a connection becomes a Conn, or keeps it,
// and learns when the last one is gone.
func TestAccept(t *testing.T) {
	testnet.NoLeaks(t)
	for name, listen := range map[string]testnet.ListenFunc{"percore": percore.Listen, "net": net.Listen} {
		t.Run(name, func(t *testing.T) {
			users := make(chan any, 1)
			kept := make(chan net.Conn, 1)
			var unused atomic.Int32
			var server *Server
			handler := HandlerFunc(func(s *Stream, r *Request) {
				users <- s.Conn().User()
				_ = s.Send(Message{Status: 200, End: true})
			})
			server = New(handler, Config{
				BeginTimeout: 2 * testnet.HangTimeout,
				Unused:       func() { unused.Add(1) },
				Accept: func(raw net.Conn) Accepted {
					return Accepted{User: raw, ClientFirst: true, Handshake: func(nc net.Conn) (net.Conn, error) {
						if below := nc.(interface{ NetConn() net.Conn }).NetConn(); below != raw {
							t.Errorf("got a connection above %v, want %v", below, raw)
						}
						var b [1]byte
						switch _, err := io.ReadFull(nc, b[:]); {
						case err != nil:
							return nil, err
						case b[0] == 'k':
							kept <- raw
							return nil, nil
						case b[0] == 'f':
							return nil, errors.New("a handshake that fails")
						case b[0] == 'g':
							runtime.Goexit()
						case b[0] == 'w': // for more
							_, err := nc.Read(b[:])
							return nil, err
						}
						return nc, nil
					}}
				},
			})
			l := testnet.Listen(t, listen, testnet.TCP4)
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()

			c := testnet.Dial(t, l)
			c.Write([]byte("s"))
			p := frames.NewPeer(t, c)
			p.Request(1, true).Flush().Want("headers 1 :status=200 end")
			if user, ok := testnet.Receive(t, "the user", users).(net.Conn); !ok || user.RemoteAddr().String() != c.LocalAddr().String() {
				t.Errorf("got the user %v, want the connection of %v", user, c.LocalAddr())
			}
			for _, sent := range []string{"f", "g"} {
				fails := testnet.Dial(t, l)
				fails.Write([]byte(sent))
				if n, err := fails.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("got %d bytes and %v after a handshake that fails, want the end", n, err)
				}
			}
			keeps := testnet.Dial(t, l)
			defer keeps.Close()
			keeps.Write([]byte("k"))
			own := testnet.Receive(t, "a connection that is kept", kept)
			if _, err := own.Write([]byte("!")); err != nil {
				t.Error(err)
			}
			own.Close()
			testnet.Eventually(t, "the end of three connections", func() bool {
				s := server.Stats()
				server.mu.Lock()
				defer server.mu.Unlock()
				return s.Opened == 1 && s.HandshakeErrors == 2 && server.mu.conns == 1
			})
			silent, stopped := testnet.Dial(t, l), testnet.Dial(t, l)
			stopped.Write([]byte("w"))
			testnet.Eventually(t, "clients that send nothing more", func() bool {
				server.mu.Lock()
				defer server.mu.Unlock()
				return server.mu.conns == 3
			})
			l.Close()
			testnet.Receive(t, "Serve's return", served)
			if !server.InUse() || unused.Load() != 0 {
				t.Error("a server with connections is unused")
			}
			server.Close()
			for _, c := range []net.Conn{silent, stopped} {
				c.SetReadDeadline(time.Now().Add(testnet.HangTimeout)) // before that of the handshake
				if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %d bytes and %v during a handshake with a server that is closed, want the end", n, err)
				}
				c.Close()
			}
			testnet.Eventually(t, "the server is unused", func() bool { return unused.Load() > 0 && !server.InUse() })
			if s := server.Stats(); s.HandshakeErrors != 4 {
				t.Errorf("got %d handshakes that failed, want 4", s.HandshakeErrors)
			}
		})
	}
}
