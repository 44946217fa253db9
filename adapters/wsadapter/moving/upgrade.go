package moving

import (
	"bufio"
	"net"
	"net/http"

	"github.com/percore/percore/adapters/wsadapter"
)

// upgrade is the http.ResponseWriter below the wsadapter.Upgrade of a conversation that can move. It
// puts a conn between the connection and the library. The methods of the Upgrade that it wraps are for
// the http.ResponseWriter.
type upgrade struct {
	*wsadapter.Upgrade
	conn *conn
}

// upgradeOf returns an Upgrade whose library takes over c.
func upgradeOf(w http.ResponseWriter, c *conn) *wsadapter.Upgrade {
	return wsadapter.NewUpgrade(&upgrade{wsadapter.NewUpgrade(w), c})
}

// WriteHeader implements http.ResponseWriter, with which some libraries answer.
func (u *upgrade) WriteHeader(status int) {
	if status == http.StatusSwitchingProtocols {
		u.conn.answer(status, u.Header())
	}
	u.Upgrade.WriteHeader(status)
}

// Hijack implements http.Hijacker. A library whose answer isn't the one that the client has had doesn't
// get the connection.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := u.conn.wrongAnswer(); err != nil {
		return nil, nil, err
	}
	nc, brw, err := http.NewResponseController(u.Unwrap()).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if u.conn.Conn == nil { // it isn't from another process
		u.conn.Conn = nc
	}
	brw.Writer.Reset(u.conn) // net/http has flushed it
	return u.conn, brw, nil
}

// unheard is an http.ResponseWriter whose client has had the answer already.
type unheard struct {
	header http.Header
	conn   net.Conn
}

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u *unheard) WriteHeader(int)             {}

// Hijack implements http.Hijacker.
func (u *unheard) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return u.conn, bufio.NewReadWriter(bufio.NewReader(u.conn), bufio.NewWriter(u.conn)), nil
}
