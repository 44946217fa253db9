package reactor

import (
	"fmt"
	"net"
	"sync"

	"github.com/percore/percore/adapters/reactor/internal/layer"
	"github.com/percore/percore/internal/pool"
)

// A connection may have a layer, TLS, between its socket and the handler. Everything in the backlog and
// in Loop.collected is the layer's then, records, and so are the bytes that are counted. Data gets
// what the layer has made of the socket's bytes.
//
// A write is admitted, and all its records are made, under layered.writing. The loop takes that to end
// the stream, so that no write is lost that was admitted before. The order of locks is writing, the
// layer's own, Conn.mu.

func init() {
	layer.TLS = func(h layer.Handshakes) any { return &TLS{h} }
	layer.Of = func(conn any) layer.Layer { return conn.(*Conn).layerOf() }
}

// layered is the part of a connection that only one with a layer has.
type layered struct {
	layer.Layer // immutable

	writing sync.Mutex // held while a write is made
	ended   bool       // CloseWrite was called; owned by the loop

	// guarded by the connection's mu
	cut bool // nothing is sent any more
}

// layerOf returns the connection's layer, or nil if it has none.
func (c *Conn) layerOf() layer.Layer {
	if !c.isLayered {
		return nil
	}
	return c.more.layered.Layer
}

// addLayer gives a new connection its layer.
func (c *Conn) addLayer(l layer.Layer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isLayered = true
	c.extrasLocked().layered = &layered{Layer: l}
	l.Enter((*rawSocket)(c))
}

// attachLayered is Attach of a connection above a layer.
func (s *Server) attachLayered(upper layer.Upper, with arriving) (*Conn, error) {
	lower, ok := upper.NetConn().(layer.Lower)
	if !ok {
		return nil, fmt.Errorf("reactor: Attach needs a %T above a connection of package reactortls, not above a %T",
			upper, upper.NetConn())
	}
	l, err := lower.Layer(upper)
	if err != nil {
		return nil, err
	}
	with.layer = l
	return s.attachAny(lower.Conn(), with)
}

// leaveLayer gives the layer back to blocking code on conn, which has more to read first.
func (c *Conn) leaveLayer(conn net.Conn, more []byte) net.Conn {
	if !c.isLayered {
		return conn
	}
	return c.more.layered.Leave(conn, more)
}

// stopLayer makes writes fail before a Hijack, once those under way have made their records, and sends
// the end of the stream if CloseWrite was called.
func (c *Conn) stopLayer() {
	l := c.more.layered
	l.writing.Lock()
	defer l.writing.Unlock()
	c.mu.Lock()
	c.refusing = true
	c.mu.Unlock()
	if c.asked.Load()&askShut != 0 && !c.shut {
		c.shut, l.ended = true, true
		l.CloseWrite()
	}
}

// rawSocket is a Conn as its layer sees it.
type rawSocket Conn

// TryRead reads from the socket.
func (r *rawSocket) TryRead(p []byte) (int, error) { return r.sock.tryRead(p) }

// Send sends a record.
func (r *rawSocket) Send(p []byte) error {
	c := (*Conn)(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more.layered.cut {
		return net.ErrClosed
	}
	(*output)(c).putLocked(nil, len(p), p)
	return nil
}

// tryRead returns bytes for the handler, or 0 and nil if there are none; then an event comes when there
// are.
func (in *input) tryRead(p []byte) (int, error) {
	if !in.isLayered {
		return in.sock.tryRead(p)
	}
	n, err := in.more.layered.Read(p)
	(*clock)(in).markPartial(n > 0)
	return n, err
}

// writeLayered is write for a connection with a layer.
func (o *output) writeLayered(told bool, size int, p [][]byte) (int, error) {
	l := o.more.layered
	l.writing.Lock()
	defer l.writing.Unlock()
	o.mu.Lock()
	err := o.admitLocked(size, told)
	o.mu.Unlock()
	switch {
	case err != nil:
		return 0, o.sock.opError("write", err)
	case size == 0:
		return 0, nil
	case len(p) == 1:
		return size, l.write((*Conn)(o), p[0])
	}
	whole := pool.Get(size) // so that a header is no record of its own
	defer whole.Release()
	room := whole.Bytes()[:0]
	for _, b := range p {
		room = append(room, b...)
	}
	return size, l.write((*Conn)(o), room)
}

// write makes the records of one write. It fails only if the connection ends: so does the stream, which
// may have got some of them.
func (l *layered) write(c *Conn, p []byte) error {
	err := l.Write(p)
	if err != nil {
		c.end(askClose, err)
	}
	return err
}

// endLayer sends the end of the layer's stream. Unless now is set it does so only if nothing waits, and
// reports false if something does, or if the end itself waits.
func (c *Conn) endLayer(now bool) bool {
	l := c.more.layered
	if l.ended {
		return true
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	c.mu.Lock()
	if !now && (c.unsent != nil || c.sending || !c.refusing && c.mayWriteLocked()) {
		c.mu.Unlock()
		return false
	}
	c.refusing = true
	c.mu.Unlock()
	l.ended = true
	l.CloseWrite()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now {
		(*output)(c).awaitSenderLocked()
	}
	(*output)(c).flushLocked()
	return now || c.unsent == nil
}

// cutLayerLocked makes the layer's records get lost: the connection is closed, or has another owner.
func (c *Conn) cutLayerLocked() {
	if c.isLayered {
		c.more.layered.cut = true
	}
}
