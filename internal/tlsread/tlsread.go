// Package tlsread reads from a *tls.Conn without waiting, for code whose goroutine, worker or loop
// does something else until more has come. crypto/tls knows only blocking reads. But when the
// connection below fails with a net.Error that is Temporary, as a timeout is, a *tls.Conn returns
// that error, keeps the part of a record that it has, and goes on with the next Read. So while
// [Read] runs, the connection below must fail with loop.ErrWouldWait instead of waiting.
//
// crypto/tls promises little of this, so [Probe] checks it once per process. If it fails, nothing
// may be read that way.
package tlsread

import (
	"crypto/tls"
	"errors"

	"github.com/percore/percore/internal/loop"
)

// Read reads what has come, until p is full, or reads calls of Read were made: each may decrypt 17
// records that a hostile peer has sent between its data. It doesn't wait if the connection below
// doesn't.
//
// dry says that crypto/tls has nothing: it has looked for more because all that it had was used up,
// except the beginning of a record or of a message to crypto/tls itself, and has found none. Only then
// does a callback of the socket report everything that is to come. An error comes with the bytes before
// it, and again with the next Read.
func Read(c *tls.Conn, p []byte, reads int) (n int, dry bool, err error) {
	for ; n < len(p) && reads > 0 && err == nil; reads-- {
		var m int
		m, err = c.Read(p[n:])
		n += m
	}
	if errors.Is(err, loop.ErrWouldWait) {
		return n, true, nil
	}
	return n, false, err
}
