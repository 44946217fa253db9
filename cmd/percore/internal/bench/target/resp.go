package target

import (
	"errors"
	"io"
	"net"

	"github.com/percore/percore/cmd/percore/internal/bench/kv"
)

// answerCommands serves store's protocol on a connection, until the client is done. It answers all
// commands that came together with one write.
func answerCommands(c net.Conn, store *kv.Store) error {
	buf, kept := make([]byte, 16<<10), 0
	var answers []byte
	for {
		n, err := c.Read(buf[kept:])
		if n > 0 {
			kept += n
			var used int
			var bad error
			if answers, used, bad = store.Answer(answers[:0], buf[:kept]); bad != nil {
				return bad
			}
			if _, err := c.Write(answers); err != nil {
				return err
			}
			if kept = copy(buf, buf[used:kept]); kept == len(buf) {
				return io.ErrShortBuffer
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
