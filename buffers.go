package percore

import (
	"io"
	"net"
)

// Buffers is [net.Buffers] with a WriteTo that also knows percore's connections. A net.Buffers can be
// converted to it, and back.
type Buffers net.Buffers

// WriteTo writes the slices of v to w, one after the other, and removes the written bytes from v
// and its slices, as net.Buffers does. If w has a method WriteBuffers, as a [Conn] has, that method
// writes all of them, with one writev(2) for up to 1024. Package net's connections also take all of
// them. Any other w gets a Write for each slice. WriteTo returns how many bytes w took, and blocks
// and fails as w does.
func (v *Buffers) WriteTo(w io.Writer) (int64, error) {
	all := (*net.Buffers)(v)
	if c, ok := w.(interface {
		WriteBuffers(v *net.Buffers) (int64, error)
	}); ok {
		return c.WriteBuffers(all)
	}
	return all.WriteTo(w)
}

// Read reads from the slices, and removes the bytes that it has read from v.
func (v *Buffers) Read(p []byte) (int, error) { return (*net.Buffers)(v).Read(p) }
