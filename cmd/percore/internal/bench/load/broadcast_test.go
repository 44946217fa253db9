package load

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/internal/testnet"
)

// TestBroadcast: an operation ends when all connections have the message, and fails if one gets another
// or none.
func TestBroadcast(t *testing.T) {
	const clients, size = 3, 100
	for name, c := range map[string]struct {
		last func(c net.Conn, msg []byte) // sends to the last connection
		want string                       // in the error
	}{
		"good":    {func(c net.Conn, msg []byte) { c.Write(msg) }, ""},
		"another": {func(c net.Conn, msg []byte) { c.Write(bytes.ToUpper(msg)) }, "differs"},
		"an end":  {func(c net.Conn, _ []byte) { c.Close() }, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			ln := testnet.Listen(t, net.Listen, testnet.TCP4)
			all, greeted := make([]net.Conn, clients), make(chan struct{})
			go func() {
				defer close(greeted)
				for i := range all {
					all[i], _ = ln.Accept()
					io.CopyN(all[i], all[i], scenario.Greeting)
				}
			}()
			sessions, err := open(&scenario.Scenario{
				App: scenario.AppBroadcast, Conns: clients, Callers: 1, Payload: size, Addr: ln.Addr().String(),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(sessions)
			<-greeted
			for _, conn := range all {
				defer conn.Close()
				go func() { // the first message is what the session's first connection sends
					msg := make([]byte, size)
					if _, err := io.ReadFull(conn, msg); err != nil {
						return
					}
					for _, c := range all[:clients-1] {
						c.Write(msg)
					}
					c.last(all[clients-1], msg)
				}()
			}
			sessions[0].setDeadline(time.Now().Add(testnet.HangTimeout))
			if err := sessions[0].op(); !says(err, c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
		})
	}
}
