package h1

import (
	"crypto/tls"
	"io"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// stream is what a worker reads requests from and writes answers to: the connection itself, or the TLS
// above it. Both implementations are the Conn by another name. A plain request meets plainStream alone;
// tls_stream.go has the other.
//
// Reads and notice may be called by the goroutine that has the connection, and by the callback. write
// and closeWrite may also be called by a handler's other goroutines.
type stream interface {
	// tryRead reads without waiting: it returns 0 and nil if there is nothing to read.
	tryRead(p []byte) (n int, err error)

	// receive reads bytes of a body, for which it waits. fill is receive into the memory of b, without
	// that memory while it waits, if possible.
	receive(p []byte) (n int, err error)
	fill(b *requestBody) (n int, err error)

	// isBuffered reports whether a short read is as cheap as a long one.
	isBuffered() bool

	// takePeeked returns a byte that notice has read, if it has: it comes before all others. It is for
	// those who take the connection from a worker. The request is over, or its handler has hijacked the
	// connection, so notice reads no more.
	takePeeked() (b byte, ok bool)

	// mustRead reports whether the connection must not wait, because there may be bytes that no callback
	// reports.
	mustRead() bool

	// hasEnded reports whether the client is known to have gone before its request is served. No
	// callback reports that any more.
	hasEnded() bool

	// notice takes a callback that has come while x is served, with its error. It reports whether that
	// was all: the callback is armed again, or a goroutine that notice has started goes on with it.
	notice(x *watched, err error) (done bool)

	write(p []byte) (int, error)
	closeWrite()

	// close closes the connection.
	close()

	// tlsState returns Request.TLS.
	tlsState() *tls.ConnectionState

	// answerOut returns x as the connection of its answer.
	answerOut(x *exchange) http1.Conn
}

// stream returns what a worker reads from and writes to.
func (c *Conn) stream() stream {
	if c.TLS() != nil {
		return (*tlsStream)(c)
	}
	return (*plainStream)(c)
}

// plainStream is a Conn without TLS. All bytes that were not read yet lie in the kernel, so the callback
// reports them.
type plainStream Conn

func (s *plainStream) tryRead(p []byte) (int, error)            { return s.Conn.TryRead(p) }
func (s *plainStream) receive(p []byte) (int, error)            { return s.Conn.Read(p) }
func (s *plainStream) fill(b *requestBody) (int, error)         { return s.Conn.ReadReady(b.lend, b.release) }
func (s *plainStream) isBuffered() bool                         { return false }
func (s *plainStream) takePeeked() (b byte, ok bool)            { return 0, false }
func (s *plainStream) mustRead() bool                           { return false }
func (s *plainStream) hasEnded() bool                           { return false }
func (s *plainStream) notice(x *watched, err error) (done bool) { return x.notice(err) }
func (s *plainStream) write(p []byte) (int, error)              { return s.Conn.Write(p) }
func (s *plainStream) closeWrite()                              { _ = s.Conn.CloseWrite() }
func (s *plainStream) close()                                   { _ = s.Conn.Close() }
func (s *plainStream) tlsState() *tls.ConnectionState           { return nil }
func (s *plainStream) answerOut(x *exchange) http1.Conn         { return plainAnswerOut{answerOut{x}} }

// answerOut is an exchange as the connection of its http1.Response, over TLS: files must be encrypted,
// so it has no ReadFrom. (In an interface a struct of one pointer is that pointer.)
type answerOut struct{ x *exchange }

// plainAnswerOut is an answerOut without TLS, whose files go out through sendfile.
type plainAnswerOut struct{ answerOut }

func (o plainAnswerOut) ReadFrom(r io.Reader) (int64, error) { return o.x.conn.Conn.ReadFrom(r) }

// Write implements http1.Conn. As with net/http, a handler whose client can't be written to finds its
// context cancelled, which is all that a stream's handler may look at.
func (o answerOut) Write(p []byte) (int, error) {
	n, err := o.x.conn.stream().write(p)
	if err != nil {
		o.x.canceler.Cancel()
	}
	return n, err
}

// Fail implements http1.Conn. The client, and a Read of the body, learn of the end while the handler
// still runs.
func (o answerOut) Fail() { _ = o.x.conn.Identity().Close() }

func (o answerOut) KeepAlives() bool {
	return o.x.conn.server().mayKeepAlive() || o.x.stays && o.x.conn.Host().KeepAlives()
}

// mayKeepAlive reports whether the header of an answer need not say that the connection is closed.
func (s *Server) mayKeepAlive() bool {
	host := s.Host
	return host.KeepAlives() && !host.Draining()
}

func (o answerOut) FinishBody(readsOn bool) (reusable, tooLong bool) {
	if o.x.body == nil {
		return true, false // of a preface of HTTP/2, which has a length of -1
	}
	return o.x.body.finish(readsOn)
}

func (o answerOut) Logf(format string, args ...any) { o.x.conn.Host().Logf(format, args...) }
