package serving

import (
	"net"
	"time"
)

// The pauses after an Accept that failed for a while, which net/http and grpc-go have.
const (
	acceptDelayMin = 5 * time.Millisecond
	acceptDelayMax = time.Second
)

// Accept calls take with the connections of l until l fails permanently, and returns its error. As
// net/http it waits a while after an error that is Temporary, which it passes to retry with the time,
// and goes on. An error that comes when ended reports true is permanent: the server is being closed.
func Accept(l net.Listener, ended func() bool, retry func(err error, in time.Duration), take func(net.Conn)) error {
	var delay time.Duration
	for {
		nc, err := l.Accept()
		if err != nil {
			if t, ok := err.(interface{ Temporary() bool }); !ok || !t.Temporary() || ended() {
				return err
			}
			delay = min(max(2*delay, acceptDelayMin), acceptDelayMax)
			retry(err, delay)
			time.Sleep(delay)
			continue
		}
		delay = 0
		take(nc)
	}
}
