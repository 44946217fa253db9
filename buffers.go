package percore

import (
	"io"
	"net"
)

// Buffers is [net.Buffers] with a WriteTo that knows percore's connections, too. A
// net.Buffers converts to it, and back.
type Buffers net.Buffers

// WriteTo writes the slices of v to w, one after the other, and takes what was written out
// of v and its slices, as net.Buffers does. If w has a method WriteBuffers, as a [Conn] has,
// that writes all of them, with one writev(2) for up to 1024. Connections of package net
// take all of them likewise. Any other w gets a Write for each slice. It returns how many
// bytes w took, and blocks, and fails, as w does.
func (v *Buffers) WriteTo(w io.Writer) (int64, error) {
	all := (*net.Buffers)(v)
	if c, ok := w.(interface {
		WriteBuffers(v *net.Buffers) (int64, error)
	}); ok {
		return c.WriteBuffers(all)
	}
	return all.WriteTo(w)
}

// Read reads from the slices, and takes what was read out of v.
func (v *Buffers) Read(p []byte) (int, error) { return (*net.Buffers)(v).Read(p) }
