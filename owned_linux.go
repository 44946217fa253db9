//go:build !percore_net

package percore

import (
	"net"
	"runtime"

	"github.com/percore/percore/internal/owned"
)

// An adapter that holds a connection says so: see package owned.

func init() {
	owned.Hold = func(c net.Conn) { c.(*Conn).hold() }
	owned.Release = func(c net.Conn) { c.(*Conn).release() }
}

// hold takes the finalizer away, for an owner that refers to c until it closes it.
func (c *Conn) hold() { runtime.SetFinalizer(c, nil) }

// release has the garbage collector close c once no object refers to it. A second finalizer would end
// the program, so one that is there already goes first: a user may have two owners of a connection by
// mistake.
func (c *Conn) release() {
	runtime.SetFinalizer(c, nil)
	runtime.SetFinalizer(c, (*Conn).Close)
}
