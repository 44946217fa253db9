package handover

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/seam"
)

// The processes exchange messages, each a JSON object with descriptors beside it.
//
//	message  from         says                                                    answered by
//	hello    successor    it wants to take over                                   offer
//	offer    predecessor  the listeners, and how many connections are open        ready
//	sockets  predecessor  the listeners' sockets, in the order of the offer       nothing
//	ready    successor    it accepts, on all listeners except those it drops      conns, done
//	conns    predecessor  connections, which the successor is to hold unserved;   took
//	                      with a carrier only if ready has named it
//	took     successor    it holds them                                           commit
//	commit   predecessor  they are the successor's                                nothing
//	done     predecessor  no more connections come                                over
//	over     successor    it has the listeners, and the predecessor doesn't       nothing
//	refuse   both         the sender gives up, and why                            nothing
//
// A receiver ignores fields that it doesn't know. A version that changes the meaning of a known
// field has another number. Hello is sent in the newest version that the successor speaks, and
// names the oldest; the predecessor answers in the newest version that both speak, or refuses.
const (
	protocol = "percore-handover"
	version  = 3 // the newest that this process speaks
	oldest   = 3

	// descriptorsMax is how many descriptors the kernel sends with a message, SCM_MAX_FD in unix(7).
	descriptorsMax = 253

	// bytesMax is how long a message may be. 253 connections fit, each with the longest PROXY header, and
	// whatever else the limits below allow.
	bytesMax = 32 << 20

	stateBytesMax  = 4 << 10 // of a listener
	listenersMax   = 500     // in an offer
	carriersMax    = 100     // of a process
	carrierNameMax = 100     // bytes, also of a part's name
)

type kind string

const (
	hello   kind = "hello"
	offer   kind = "offer"
	sockets kind = "sockets"
	ready   kind = "ready"
	conns   kind = "conns"
	took    kind = "took"
	commit  kind = "commit"
	done    kind = "done"
	over    kind = "over"
	refuse  kind = "refuse"
)

// message is the content of a message, without its descriptors.
type message struct {
	// every version has these, first
	Protocol string `json:"protocol"`
	Version  int    `json:"version"`
	Oldest   int    `json:"oldest,omitempty"` // of hello: the oldest version that the sender speaks; 0: Version

	Kind      kind              `json:"kind"`
	Listeners []offeredListener `json:"listeners,omitempty"` // of offer
	Open      int               `json:"open,omitempty"`      // of offer: open connections, an estimate
	Dropped   []int             `json:"dropped,omitempty"`   // of ready: the indexes of listeners in the offer
	Carriers  []string          `json:"carriers,omitempty"`  // of ready: names of the sender's carriers
	Conns     []movedConn       `json:"conns,omitempty"`     // of conns, one per descriptor
	Carrier   string            `json:"carrier,omitempty"`   // of conns: it returns them, not Accept
	Hold      bool              `json:"hold,omitempty"`      // of conns with a carrier: see the argument more of TakeOver
	Reason    string            `json:"reason,omitempty"`    // of refuse
}

type offeredListener struct {
	Name    string `json:"name"`
	Network string `json:"network"`
	Address string `json:"address"`
	Sockets int    `json:"sockets"`
	Unlink  bool   `json:"unlink,omitempty"` // whether Close removes the file of the unix socket
	State   []byte `json:"state,omitempty"`  // for the successor's program
}

// String names the listener in errors.
func (l *offeredListener) String() string {
	return fmt.Sprintf("%q at %s %s", l.Name, l.Network, l.Address)
}

type movedConn struct {
	Listener int     `json:"listener"` // its index in the offer
	Served   bool    `json:"served,omitempty"`
	Client   *client `json:"client,omitempty"` // from the PROXY header, if there was one
	State    []byte  `json:"state,omitempty"`  // for the carrier, if there is one
}

// client is a header with bytes in place of its strings, which need not be text.
type client struct {
	proxyproto.Header
	SourceName      []byte `json:",omitempty"`
	DestinationName []byte `json:",omitempty"`
	TLVs            []byte `json:",omitempty"`
}

// movedConnOf describes a connection of the listener with that index.
func movedConnOf(listener int, served bool, a seam.ConnInfo) movedConn {
	c := movedConn{Listener: listener, Served: served}
	if h := a.Client; h != (proxyproto.Header{}) {
		c.Client = &client{h, []byte(h.SourceName), []byte(h.DestinationName), []byte(h.TLVs)}
	}
	return c
}

// info is the inverse of movedConnOf.
func (c *movedConn) info() seam.ConnInfo {
	a := seam.ConnInfo{Served: c.Served}
	if h := c.Client; h != nil {
		a.Client = h.Header
		a.Client.SourceName, a.Client.DestinationName, a.Client.TLVs = string(h.SourceName), string(h.DestinationName), string(h.TLVs)
	}
	return a
}

// isEmpty reports whether m need not be sent: it has no connections, and no carrier of the successor
// waits for it.
func (m *message) isEmpty() bool { return len(m.Conns) == 0 && (m.Carrier == "" || m.Hold) }

// encode returns the message in its wire format.
func (m *message) encode() ([]byte, error) {
	m.Protocol, m.Version = protocol, version
	if m.Kind == hello {
		m.Oldest = oldest
	}
	return json.Marshal(m)
}

// decode is the inverse of encode, for a message that came with this number of descriptors.
func decode(p []byte, descriptors int) (*message, error) {
	m := new(message)
	err := json.Unmarshal(p, m)
	if m.Protocol != protocol { // it is empty if p isn't all JSON
		return nil, fmt.Errorf("a message is not of the protocol %s, or is cut off: it begins with %q", protocol, p[:min(len(p), 20)])
	}
	if m.Version < oldest || cmp.Or(m.Oldest, m.Version) > version {
		return nil, versionError(m.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("a message can't be read: %w", err)
	}
	if descriptors > 0 && m.Kind != sockets && m.Kind != conns {
		return nil, fmt.Errorf("a message %q with %d descriptors, where none belong", m.Kind, descriptors)
	}
	if len(m.Carriers) > carriersMax {
		return nil, fmt.Errorf("a message %q with %d carriers, more than %d", m.Kind, len(m.Carriers), carriersMax)
	}
	if m.Kind == conns && len(m.Conns) != descriptors {
		return nil, fmt.Errorf("a message with %d connections and %d descriptors", len(m.Conns), descriptors)
	}
	return m, nil
}

func versionError(theirs int) error {
	return fmt.Errorf("the other process speaks version %d of the protocol, and this one version %d:"+
		" replace the old process once without a handover", theirs, version)
}

func (m *message) checkOffer() error {
	if len(m.Listeners) == 0 || len(m.Listeners) > listenersMax {
		return fmt.Errorf("an offer of %d listeners", len(m.Listeners))
	}
	if m.Open < 0 {
		return fmt.Errorf("an offer of %d connections", m.Open)
	}
	names := make(map[string]bool)
	for i := range m.Listeners {
		l := &m.Listeners[i]
		if names[l.Name] {
			return fmt.Errorf("an offer of two listeners named %q", l.Name)
		}
		names[l.Name] = true
		if l.Sockets < 1 || l.Sockets > socketsMax {
			return fmt.Errorf("an offer of listener %v with %d sockets", l, l.Sockets)
		}
	}
	return nil
}

// socketsMax is how many sockets a listener may have: far more than there are processors.
const socketsMax = 1 << 16

// errUnexpected returns the error for a message of another kind than the wanted kinds.
func errUnexpected(m *message, want ...kind) error {
	if m.Kind == refuse {
		return errors.New("the other process gave up: " + oneLine(m.Reason))
	}
	return fmt.Errorf("a message %q came where %q is due", m.Kind, want)
}

// reasonBytesMax is how many bytes of text from another process an error repeats.
const reasonBytesMax = 500

// oneLine makes text from another process fit into an error.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > reasonBytesMax {
		s = strings.ToValidUTF8(s[:reasonBytesMax], "") + "…"
	}
	return s
}
