//go:build !percore_net

package percore

import (
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/zerocopy"
)

// readFrom lets the kernel move the bytes that it can move by itself, and copies the rest through
// memory. Its errors are of the third layer.
func (s *sock) readFrom(c *Conn, r io.Reader) (n int64, err error) {
	source, limit := r, int64(-1)
	limited, ok := r.(*io.LimitedReader)
	if ok {
		if limited.N <= 0 {
			return 0, nil
		}
		source = limited.R
	}
	if c, ok := source.(*netConn); ok {
		source = c.read
	}
	from, ok := endpointOf(source)
	if ok {
		if n, err = from.copyBuffered(c, r); err != nil {
			return n, c.copyError("readfrom", err)
		}
		if limited != nil {
			limit = limited.N
		}
		m, done, err := s.transferFrom(c, &from, limit)
		n += m
		if limited != nil {
			limited.N -= m
		}
		if done {
			return n, err
		}
	}
	var m int64
	if from.conn != nil {
		m, err = copyFrom(from.conn, connWithoutReadFrom{c}, new(copyMemory), limited)
	} else {
		m, err = copyBytesOf(source, r, connWithoutReadFrom{c})
	}
	return n + m, c.copyError("readfrom", err)
}

// writeTo is readFrom in the other direction.
func (s *sock) writeTo(c *Conn, w io.Writer) (n int64, err error) {
	to, known := endpointOf(w)
	if known {
		var done bool
		if n, done, err = s.transferTo(c, &to); done {
			return n, err
		}
	}
	var m int64
	if into, ok := w.(io.ReaderFrom); ok && (!known || to.conn != nil) {
		m, err = into.ReadFrom(connWithoutWriteTo{c})
	} else {
		m, err = copyFrom(c, w, &copyMemory{shown: !known}, nil)
		if known && err != nil {
			err = to.copiedError(err)
		}
	}
	return n + m, c.copyError("writeto", err)
}

// transferFrom lets the kernel move up to limit bytes from from to c. If done is false, the rest,
// after n bytes, has to be copied.
func (s *sock) transferFrom(c *Conn, from *endpoint, limit int64) (n int64, done bool, err error) {
	defer runtime.KeepAlive(from.conn)
	if from.file != nil {
		n, done, err = finished(zerocopy.SendFile(s.fd.Stream(), from.raw, limit))
		if done || n > 0 {
			return n, done, from.sentError(c, err)
		}
		// A file that sendfile can't read may be a pipe.
	}
	n, done, err = finished(zerocopy.Splice(s.fd.Stream(), from.raw, limit))
	return n, done, from.splicedError(c, err)
}

// transferTo lets the kernel move all of c to the endpoint to.
func (s *sock) transferTo(c *Conn, to *endpoint) (n int64, done bool, err error) {
	defer runtime.KeepAlive(to.conn)
	n, done, err = finished(zerocopy.Splice(to.raw, s.fd.Stream(), -1))
	return n, done, to.takenError(c, err)
}

// finished reports whether a fast path has left nothing to do, and its error if so.
func finished(n int64, handled bool, err error) (int64, bool, error) {
	if !handled || errors.Is(err, zerocopy.ErrUnfinished) {
		return n, false, nil
	}
	return n, true, err
}

// This is how a connection lends its socket to package zerocopy.
var _ zerocopy.Stream = engine.Stream{}

// An endpoint is the source or the destination of a connection's bytes, if the kernel knows it.
type endpoint struct {
	raw    syscall.RawConn
	unix   bool // a stream over a unix socket, as opposed to TCP
	hidden hiding
	ahead  reflect.Value // of an upgradedBody: the *bufio.Reader with the bytes that were read ahead, or nil

	// one of these is set
	conn *Conn
	peer net.Conn // a *net.TCPConn or a *net.UnixConn
	file *os.File
}

// endpointOf returns the endpoint that v is.
//
// It checks the exact type. A TLS connection, or one that peeks, often embeds a *net.TCPConn and so
// has its SyscallConn; moving bytes past it would corrupt the stream.
func endpointOf(v any) (endpoint, bool) {
	switch v := v.(type) {
	case *Conn:
		return connEndpoint(v)
	case connWithoutWriteTo:
		return connEndpoint(v.c)
	case *net.TCPConn:
		return rawEndpoint(endpoint{peer: v}, v, v == nil)
	case *netConn: // to copy to; readFrom knows its other half
		return rawEndpoint(endpoint{peer: v.tcpConn}, v.tcpConn, false)
	case *net.UnixConn:
		return rawEndpoint(endpoint{peer: v, unix: true}, v, v == nil || !isStream(v))
	case *os.File:
		return rawEndpoint(endpoint{file: v}, v, v == nil)
	}
	if as := hidingOf(v); as != inTheOpen {
		return as.endpointOf(v)
	}
	return endpoint{}, false
}

func connEndpoint(c *Conn) (endpoint, bool) {
	if !c.ok() {
		return endpoint{}, false
	}
	return endpoint{conn: c, unix: c.isUnix(), raw: c.sock.fd.Stream()}, true
}

func rawEndpoint(e endpoint, c syscall.Conn, unfit bool) (endpoint, bool) {
	if unfit {
		return endpoint{}, false
	}
	raw, err := c.SyscallConn()
	e.raw = raw
	return e, err == nil
}

// isStream reports whether c is a stream, as opposed to a socket of packets.
func isStream(c *net.UnixConn) bool {
	a := c.LocalAddr()
	return a != nil && a.Network() == "unix"
}

// copyBuffered copies the bytes that an upgradedBody has read ahead to c. r is the body, or a
// LimitedReader around it.
func (e *endpoint) copyBuffered(c *Conn, r io.Reader) (n int64, err error) {
	if e.hidden != upgradedBody || e.ahead.IsNil() {
		return 0, nil
	}
	b := pool.Get(copyBytes)
	defer b.Release()
	for !e.ahead.IsNil() { // while it isn't, a Read returns nothing else
		m, rerr := r.Read(b.Bytes())
		m, err = connWithoutReadFrom{c}.Write(b.Bytes()[:m])
		n += int64(m)
		switch {
		case err != nil:
			return n, err
		case rerr == io.EOF: // the limit
			return n, nil
		case rerr != nil:
			return n, rerr
		}
	}
	return n, nil
}

// A transfer fails with the same errors as the same copy between connections of package net. Where
// net would copy through a buffer, these are the errors of reads and writes.

// sentError is the error of a sendfile from e to c.
func (e *endpoint) sentError(c *Conn, err error) error {
	why, ok := err.(*zerocopy.Error)
	switch {
	case !ok:
		return err
	case e.hidden == fileWithoutWriteTo:
		// On net it would be the file that called sendfile: os.File.WriteTo.
		return e.pathError("read", syscallError("sendfile", why.Err))
	case c.isUnix():
		return c.copyError("readfrom", copyingError(e, &endpoint{conn: c}, why))
	}
	return c.copyError("readfrom", syscallError("sendfile", why.Err))
}

// splicedError is the error of a splice from e to c.
func (e *endpoint) splicedError(c *Conn, err error) error {
	why, ok := err.(*zerocopy.Error)
	switch {
	case !ok:
		return err
	case e.file != nil, e.hidden == upgradedBody, c.isUnix() && e.unix:
		return c.copyError("readfrom", copyingError(e, &endpoint{conn: c}, why))
	}
	return c.copyError("readfrom", syscallError("splice", why.Err))
}

// takenError is the error of a splice from c to e.
func (e *endpoint) takenError(c *Conn, err error) error {
	why, ok := err.(*zerocopy.Error)
	if !ok {
		return err
	}
	err = syscallError("splice", why.Err)
	switch {
	case e.hidden == tcpConnWithoutReadFrom:
		return err // net.TCPConn.ReadFrom, which called us, wraps it
	case e.hidden == fileWithoutReadFrom:
		return e.pathError("write", err)
	case e.hidden == upgradedBody, c.isUnix() && e.unix:
		err = copyingError(&endpoint{conn: c}, e, why)
	case e.file != nil:
		err = e.pathError("write", err)
	case e.unix: // net.TCPConn.WriteTo knows unix connections
	case e.conn != nil:
		err = e.conn.copyError("readfrom", err)
	default:
		err = asReadFrom(e.peer.(*net.TCPConn), err)
	}
	return c.copyError("writeto", err)
}

// copyingError is the error of reading from one end or writing to the other.
func copyingError(from, to *endpoint, why *zerocopy.Error) error {
	if why.End == zerocopy.Source {
		return from.ioError("read", why.Err)
	}
	return to.ioError("write", why.Err)
}

func (e *endpoint) ioError(op string, err error) error {
	switch {
	case e.conn != nil:
		return e.conn.opError(op, syscallError(op, err))
	case e.file != nil:
		return e.pathError(op, err)
	}
	local, remote := e.peer.LocalAddr(), e.peer.RemoteAddr()
	return &net.OpError{Op: op, Net: local.Network(), Source: local, Addr: remote, Err: syscallError(op, err)}
}

// copiedError is the error of a copy to e. On net some ends copy by themselves, in a method ReadFrom.
func (e *endpoint) copiedError(err error) error {
	if c, ok := e.peer.(*net.TCPConn); ok && e.hidden == inTheOpen {
		return asReadFrom(c, err)
	}
	return err
}

// pathError is the third layer of an os.File's error.
func (e *endpoint) pathError(op string, err error) error {
	if err.Error() == fileClosing {
		err = os.ErrClosed
	}
	return &os.PathError{Op: op, Path: e.file.Name(), Err: err}
}

// fileClosing is the error of the RawConn of a closed file (internal/poll.ErrFileClosing); the
// file's other methods return os.ErrClosed.
const fileClosing = "use of closed file"

// isUnix reports whether c is a stream over a unix socket.
func (c *Conn) isUnix() bool { return strings.HasPrefix(c.sock.network(), "unix") }

// copyError is opError for ReadFrom and WriteTo. Package net's unix connections have neither method,
// so an io.Copy fails with the errors of reads and writes, and so does it here.
func (c *Conn) copyError(op string, err error) error {
	if err == nil || err == io.EOF || c.isUnix() {
		return err
	}
	return c.opError(op, err)
}

// hiding says in which private type of the standard library an endpoint is.
type hiding uint8

const (
	inTheOpen hiding = iota

	// WriteTo of a connection or a file that could not copy by itself passes one of these two to io.Copy.
	tcpConnWithoutWriteTo
	fileWithoutWriteTo

	// And ReadFrom passes one of these two.
	tcpConnWithoutReadFrom
	fileWithoutReadFrom

	// upgradedBody is the body of a response with status 101 Switching Protocols: net/http's
	// connection to a server, behind a bufio.Reader while that has bytes. After that, reads and writes
	// go straight to the connection. It is the end that httputil.ReverseProxy copies from and to.
	upgradedBody
)

// hiddenTypes are the private types by name. A test checks that the names are right; if one isn't,
// bytes are copied.
var hiddenTypes = map[string]struct {
	as     hiding
	fields []string // all of them: with a further one the type may mean something else; the last has the end
}{
	"net.tcpConnWithoutWriteTo":     {tcpConnWithoutWriteTo, []string{"noWriteTo", "TCPConn"}},
	"net.tcpConnWithoutReadFrom":    {tcpConnWithoutReadFrom, []string{"noReadFrom", "TCPConn"}},
	"os.fileWithoutWriteTo":         {fileWithoutWriteTo, []string{"noWriteTo", "File"}},
	"os.fileWithoutReadFrom":        {fileWithoutReadFrom, []string{"noReadFrom", "File"}},
	"net/http.*readWriteCloserBody": {upgradedBody, []string{"_", "br", "ReadWriteCloser"}},
}

// knownTypes caches, by reflect.Type, the hiding of a type of these packages.
var knownTypes sync.Map

// hidingOf returns how v hides an endpoint, or inTheOpen if it doesn't.
func hidingOf(v any) hiding {
	t := reflect.TypeOf(v)
	if t == nil {
		return inTheOpen
	}
	star, s := "", t
	if t.Kind() == reflect.Pointer {
		star, s = "*", t.Elem()
	}
	pkg := s.PkgPath()
	if s.Kind() != reflect.Struct || pkg != "net" && pkg != "os" && pkg != "net/http" {
		return inTheOpen
	}
	if known, ok := knownTypes.Load(t); ok {
		return known.(hiding)
	}
	as := inTheOpen
	if want, ok := hiddenTypes[pkg+"."+star+s.Name()]; ok && hasFields(s, want.fields) {
		as = want.as
	}
	knownTypes.Store(t, as)
	return as
}

func hasFields(s reflect.Type, names []string) bool {
	if s.NumField() != len(names) {
		return false
	}
	for i, name := range names {
		if s.Field(i).Name != name {
			return false
		}
	}
	return true
}

// endpointOf returns the endpoint in v.
func (as hiding) endpointOf(v any) (endpoint, bool) {
	s := reflect.Indirect(reflect.ValueOf(v))
	if !s.IsValid() {
		return endpoint{}, false
	}
	field := s.Field(s.NumField() - 1) // exported, though its struct is not
	if !field.CanInterface() {
		return endpoint{}, false
	}
	e, ok := endpointOf(field.Interface())
	if !ok || e.hidden != inTheOpen || (as == upgradedBody && e.file != nil) {
		return endpoint{}, false
	}
	e.hidden = as
	if as == upgradedBody {
		e.ahead = s.FieldByName("br")
	}
	return e, true
}
