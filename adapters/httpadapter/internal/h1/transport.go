package h1

import (
	"crypto/tls"
	"io"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// transport is what a worker reads requests from and writes answers to: a plainTransport, or a
// tlsTransport. Both are the Conn by another name.
//
// The goroutine that has the connection calls the methods for reading, and so does the callback. Write
// and closeWrite may also be called by a handler's other goroutines.
type transport interface {
	// tryRead reads without waiting: it returns 0 and nil if there is nothing to read.
	tryRead(p []byte) (n int, err error)

	// receive waits for bytes of a body. fill is receive into b's memory, which it takes only when bytes
	// have come, if possible.
	receive(p []byte) (n int, err error)
	fill(b *requestBody) (n int, err error)

	// isBuffered reports whether short reads are as cheap as long ones.
	isBuffered() bool

	// takePeeked returns the byte that notice has read, if any: it comes before all others. It is for the
	// end of a worker's turn, when notice reads no more.
	takePeeked() (b byte, ok bool)

	// mustRead reports whether there may be bytes that no callback reports, so the connection must not
	// wait.
	mustRead() bool

	// hasEnded reports whether the client is known to have gone, which no callback will report.
	hasEnded() bool

	// notice takes a callback that has come while x is served, with its error. It reports whether the
	// callback is dealt with: it is armed again, or a goroutine deals with it.
	notice(x *watched, err error) (done bool)

	write(p []byte) (int, error)
	closeWrite()

	close()
	tlsState() *tls.ConnectionState   // Request.TLS
	answerOut(x *exchange) http1.Conn // x as the connection of its answer
}

func (c *Conn) transport() transport {
	if c.TLS() != nil {
		return (*tlsTransport)(c)
	}
	return (*plainTransport)(c)
}

// plainTransport is a Conn without TLS. All bytes that were not read yet lie in the kernel, so the
// callback reports them.
type plainTransport Conn

func (s *plainTransport) tryRead(p []byte) (int, error) { return s.Conn.TryRead(p) }
func (s *plainTransport) receive(p []byte) (int, error) { return s.Conn.Read(p) }
func (s *plainTransport) fill(b *requestBody) (int, error) {
	return s.Conn.ReadReady(b.lend, b.release)
}
func (s *plainTransport) isBuffered() bool                         { return false }
func (s *plainTransport) takePeeked() (b byte, ok bool)            { return 0, false }
func (s *plainTransport) mustRead() bool                           { return false }
func (s *plainTransport) hasEnded() bool                           { return false }
func (s *plainTransport) notice(x *watched, err error) (done bool) { return x.notice(err) }
func (s *plainTransport) write(p []byte) (int, error)              { return s.Conn.Write(p) }
func (s *plainTransport) closeWrite()                              { _ = s.Conn.CloseWrite() }
func (s *plainTransport) close()                                   { _ = s.Conn.Close() }
func (s *plainTransport) tlsState() *tls.ConnectionState           { return nil }
func (s *plainTransport) answerOut(x *exchange) http1.Conn         { return plainAnswerOut{answerOut{x}} }

// answerOut is an exchange as the connection of its http1.Response, over TLS: files must be encrypted,
// so it has no ReadFrom. (As a struct of one pointer it needs no memory in an interface.)
type answerOut struct{ x *exchange }

// plainAnswerOut is an answerOut without TLS, whose files go out through sendfile.
type plainAnswerOut struct{ answerOut }

func (o plainAnswerOut) ReadFrom(r io.Reader) (int64, error) { return o.x.conn.Conn.ReadFrom(r) }

// Write cancels the request's context if it fails, as net/http does: a handler of long answers may look
// at nothing else.
func (o answerOut) Write(p []byte) (int, error) {
	n, err := o.x.conn.transport().write(p)
	if err != nil {
		o.x.canceler.Cancel()
	}
	return n, err
}

// Fail closes the connection while the handler still runs, so a Read of the body fails, too.
func (o answerOut) Fail() { _ = o.x.conn.Identity().Close() }

func (o answerOut) KeepAlives() bool {
	return o.x.conn.server().mayKeepAlive() || o.x.stays && o.x.conn.Host().KeepAlives()
}

// mayKeepAlive reports whether an answer need not say that the connection closes.
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
