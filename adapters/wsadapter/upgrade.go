package wsadapter

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
)

// Upgrade is an http.ResponseWriter for the call with which a WebSocket library takes over a request's
// connection: gorilla's Upgrader.Upgrade, coder's Accept, gobwas' UpgradeHTTP. It wraps the
// http.ResponseWriter of the request. Only one goroutine may use it at a time.
type Upgrade struct {
	http.ResponseWriter
	conn *Conn
}

// NewUpgrade returns w for a WebSocket library.
func NewUpgrade(w http.ResponseWriter) *Upgrade {
	if w == nil {
		panic("wsadapter: NewUpgrade was called with a nil http.ResponseWriter")
	}
	return &Upgrade{ResponseWriter: w}
}

// Conn returns the connection, or nil before the library has taken it over.
func (u *Upgrade) Conn() *Conn { return u.conn }

// Hijack implements http.Hijacker. The connection is a [*Conn], and the reader reads from it.
func (u *Upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, brw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c := New(nc)
	if n := brw.Reader.Buffered(); n == 0 {
		brw.Reader.Reset(c)
	} else {
		// The client's first frames came with its request.
		early, _ := brw.Reader.Peek(n)
		early = bytes.Clone(early)
		c.frames.Pass(early)
		brw.Reader.Reset(io.MultiReader(bytes.NewReader(early), c))
		_, _ = brw.Reader.Peek(n) // so that they are buffered again
	}
	u.conn = c
	return c, brw, nil
}

// Unwrap is for http.ResponseController.
func (u *Upgrade) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// WriteHeaderNow is for gin, which holds back a header until it is called. coder's Accept looks for it.
func (u *Upgrade) WriteHeaderNow() {
	if w, ok := u.ResponseWriter.(interface{ WriteHeaderNow() }); ok {
		w.WriteHeaderNow()
	}
}
