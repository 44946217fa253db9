package moving

import (
	"bufio"
	"net"
	"net/http"

	"github.com/percore/percore/adapters/wsadapter"
)

// upgrade is the http.ResponseWriter below the wsadapter.Upgrade of a new conversation. It puts a conn
// between the connection and the library. The Upgrade in it has Unwrap and WriteHeaderNow.
type upgrade struct {
	*wsadapter.Upgrade
	conn *conn
}

// WriteHeader implements http.ResponseWriter, with which some libraries answer.
func (u *upgrade) WriteHeader(status int) {
	u.conn.answer(status, u.Header())
	u.Upgrade.WriteHeader(status)
}

// Hijack implements http.Hijacker.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, brw, err := http.NewResponseController(u.Unwrap()).Hijack()
	if err != nil {
		return nil, nil, err
	}
	u.conn.Conn = nc
	brw.Writer.Reset(u.conn) // net/http has flushed it
	return u.conn, brw, nil
}

// unheard is the same for a conversation from another process, whose client has had the answer already.
type unheard struct {
	header http.Header
	conn   *conn
}

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u *unheard) WriteHeader(status int)      { u.conn.answer(status, u.header) }

func (u *unheard) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return u.conn, bufio.NewReadWriter(bufio.NewReader(u.conn), bufio.NewWriter(u.conn)), u.conn.wrongAnswer()
}
