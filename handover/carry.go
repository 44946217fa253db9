package handover

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/percore/percore/internal/seam"
)

// A Carrier moves hijacked connections to another process, together with what the program knows about
// them. For WebSockets there is package wsadapter/moving. The successor's Carrier of the same name gets
// them.
type Carrier interface {
	// HandOver calls give with connections that are neither read nor written at the moment, at most
	// [CarriedMax] at a time with together [CarriedBytesMax] bytes of state, until no connection is left
	// that can move. Connections for which takes is false stay: they belong to a listener that doesn't
	// move. The Conn of each is the *percore.Conn itself.
	//
	// Until give returns, nothing may read from its connections or write to them. If give returns nil,
	// they belong to the other process, and HandOver closes the copies in this process; otherwise they
	// stay, and HandOver returns the error. It returns ctx's error when ctx ends.
	//
	// more says that these connections belong together with further ones that follow, such as the members
	// of a room: see TakeOver. In the last call more is false.
	//
	// HandOver is called twice, one call after the other, on a goroutine of its own.
	HandOver(ctx context.Context, takes func(net.Conn) bool, give func(batch []CarriedConn, more bool) error) error

	// TakeOver gets connections in the successor, as give got them, and owns them. Connections that ended
	// on the way are missing. While more is true, it should not serve them: a last call follows in which
	// more is false, with connections or without, even if the handover fails. TakeOver may block for a
	// moment, which slows down the predecessor; after 10 seconds the predecessor gives up, and goes on
	// serving the rest. Calls follow one another.
	TakeOver(batch []CarriedConn, more bool)
}

const (
	// CarriedMax is how many connections a Carrier may give at a time.
	CarriedMax = 64

	// CarriedBytesMax is how many bytes of state they may have together, and so the maximum for one:
	// encoded, and with 64 PROXY headers, they fit into a message (TestLongestMessages).
	CarriedBytesMax = 64 << 10
)

// CarriedConn is a connection that a [Carrier] moves, with its state.
type CarriedConn struct {
	Conn  net.Conn
	State []byte
}

// Carry makes the carrier move its connections when the process hands over ([Service.Conns]), and lets
// it take over the connections of the predecessor's carrier of that name. If a process has no carrier
// of that name, the connections stay with the predecessor, and Shutdown tells them to end.
//
// Call it before Service.Run. The name must have 1 to 100 bytes. Carry panics if it doesn't, if c is
// nil, if there already is a carrier of that name, or if there are already 100 carriers.
func (s *Conns) Carry(name string, c Carrier) {
	if isNil(c) {
		panic(errNil("Conns.Carry", "c", "what moves the connections, such as a *moving.Group").Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case name == "" || len(name) > carrierNameMax:
		panic(fmt.Sprintf("handover: a carrier's name of %d bytes", len(name)))
	case s.carry[name] != nil:
		panic(fmt.Sprintf("handover: two carriers are named %q", name))
	case len(s.carry) == carriersMax:
		panic("handover: too many carriers")
	}
	if s.carry == nil {
		s.carry = make(map[string]Carrier)
	}
	s.carry[name] = c
}

// carriers returns all carriers. s may be nil.
func (s *Conns) carriers() map[string]Carrier {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.carry)
}

// takers returns the carriers of conns, which may be nil, as they take over.
func takers(conns *Conns) map[string]*taking {
	all := make(map[string]*taking)
	for name, c := range conns.carriers() {
		all[name] = &taking{carrier: c}
	}
	return all
}

// taking is a carrier that takes over.
type taking struct {
	carrier Carrier
	more    bool // the last call said so
}

func (t *taking) takeOver(batch []CarriedConn, more bool) {
	t.more = more
	t.carrier.TakeOver(batch, more)
}

// endCarriers keeps the promise of a last call, if the predecessor hasn't.
func (s *successor) endCarriers() {
	for _, t := range s.carriers {
		if t.more {
			t.takeOver(nil, false)
		}
	}
}

// carried returns the names of the carriers that the successor has as well.
func (g *giver) carried() []string {
	ours := slices.Collect(maps.Keys(g.conns.carriers()))
	return slices.DeleteFunc(ours, func(name string) bool { return !slices.Contains(g.carriers, name) })
}

// serverOf returns the index of the server that c belongs to, or -1 if none of those that move does.
func (g *giver) serverOf(c net.Conn) int {
	i := slices.IndexFunc(g.servers, func(s server) bool { return s.moving.Has(c) })
	if g.dropped[i] {
		return -1
	}
	return i
}

// drainCarrier makes a carrier give its connections.
func (g *giver) drainCarrier(ctx context.Context, name string) error {
	patient, progress := g.patient(ctx)
	give := func(batch []CarriedConn, more bool) error {
		err := g.giveCarried(name, batch, more)
		progress()
		return err
	}
	takes := func(nc net.Conn) bool { return g.serverOf(nc) >= 0 }
	if err := g.conns.carriers()[name].HandOver(patient, takes, give); err != nil && patient.Err() == nil {
		return err
	}
	return nil
}

// giveCarried hands over a batch of a carrier's connections. If it fails, they stay.
func (g *giver) giveCarried(carrier string, batch []CarriedConn, more bool) error {
	if len(batch) > CarriedMax {
		return g.fail(fmt.Errorf("a batch of %d connections, more than %d", len(batch), CarriedMax))
	}
	bytes := 0
	out := make([]outgoing, len(batch))
	for j, b := range batch {
		bytes += len(b.State)
		i := g.serverOf(b.Conn)
		if i < 0 {
			return g.fail(fmt.Errorf("a %T is no connection of a listener that moves", b.Conn))
		}
		about := movedConnOf(i, true, seam.ConnInfoOf(b.Conn))
		about.State = b.State
		out[j] = outgoing{b.Conn, about}
	}
	if bytes > CarriedBytesMax {
		return g.fail(fmt.Errorf("connections with %d bytes of state, more than %d", bytes, CarriedBytesMax))
	}
	return g.transfer(&message{Carrier: carrier, Hold: more}, out)
}
