package target

import (
	"bytes"
	"io"
	"net"
	"strconv"

	"github.com/percore/percore/adapters/reactor"
)

// bareAnswer is what a server without HTTP sends: the bytes of hello's answer, on a day gone by.
var bareAnswer = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Fri, 27 Nov 2026 12:00:00 GMT\r\nContent-Length: " +
	strconv.Itoa(len(helloBody)) + "\r\n\r\n" + string(helloBody))

var headerEnd = []byte("\r\n\r\n")

// answerBare answers each header without a look at it, until the client is done. No server of blocking
// code can cost less.
func answerBare(c net.Conn) error {
	buf := make([]byte, 4096)
	for have := 0; ; {
		n, err := c.Read(buf[have:])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if have += n; !bytes.HasSuffix(buf[:have], headerEnd) && have < len(buf) {
			continue
		}
		have = 0
		if _, err := c.Write(bareAnswer); err != nil {
			return err
		}
	}
}

// bareHandler is answerBare as an event handler.
type bareHandler struct{ stateless }

func (bareHandler) Data(c *reactor.Conn, p []byte) (used int) {
	if !bytes.HasSuffix(p, headerEnd) {
		return 0
	}
	c.Write(bareAnswer) // an error ends the connection
	return len(p)
}
