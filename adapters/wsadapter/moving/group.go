package moving

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/handover"
)

// Group is a set of conversations that package handover knows. When the server stops, the Group tells
// their peers to connect again. When it restarts, conversations that can move go to the new process,
// and their peers notice nothing. See the package's comment.
//
// All methods are safe for concurrent use.
type Group struct {
	// immutable
	conns    *handover.Conns
	restorer Restorer
	arrivals arrivals

	leaving atomic.Pointer[departure] // nil: none is under way

	mu  sync.Mutex
	all map[*conn]struct{} // guarded by mu
}

// Saver is a [wsadapter.Session] that can move to another process.
type Saver interface {
	// Save returns what the Restorer in the other process needs to make a Session like this one, such as
	// the names of the user and of his rooms: at most [StateMax] bytes, which the adapter doesn't keep.
	//
	// It is called while the conversation waits for a message, never at the same time as the other
	// methods, and perhaps several times: the conversation may stay, or something may be written in the
	// meantime.
	//
	// Other goroutines may write at any time. Writes that end before the conversation moves reach the
	// peer, and the adapter calls Save after them. Later writes wait for a moment, and fail with
	// [ErrMoved] if the conversation has moved. Guard state about writes, such as the number of the last
	// message, with a lock that the writer holds until the write has returned, and that Save takes.
	//
	// If something still has to be written, such as messages in a queue, return [ErrNotNow]: Save is
	// called again soon. Any other error makes the conversation stay. Save may block for 2 seconds; other
	// conversations that move wait for it. A panic ends the conversation.
	Save() ([]byte, error)
}

// ErrNotNow is the error with which Save asks to be called again in a moment.
var ErrNotNow = errors.New("wsadapter: not now")

// Restorer makes a Session for a conversation from another process, in three steps. It passes up and r
// to the WebSocket library, as for the upgrade, with the same settings. It makes the Session with the
// state that Save returned. And it calls [wsadapter.Start] with up.Conn().
//
// r is the request as the client sent it, with the client's address. It has no TLS, no path values,
// and nothing that middleware put into its context: put what you need of these into the state. The
// client has already had an answer, so the adapter drops the library's. It must be the same, with the
// same subprotocol and extensions. Set read limits, deadlines and ping handlers again, since they are
// state of the library.
//
// If the Restorer fails, panics, doesn't call Start, or takes longer than 5 seconds, or if the answer
// is different, the client gets a close message with code 1012 within 5 seconds, and connects again.
// Up to 64 Restorers run at a time; the predecessor waits while there are that many. A Restorer that
// has taken too long no longer counts, but still runs: if it hangs, it keeps its goroutine.
type Restorer func(up *wsadapter.Upgrade, r *http.Request, state []byte) error

// NewGroup returns a Group whose conversations are in conns. The name distinguishes the Groups of a
// process; the Group in the other process must have the same name. See [handover.Conns.Carry]. If the
// Restorer is nil, conversations don't move.
//
// Call NewGroup before the server starts: from then on conversations may come from a predecessor.
func NewGroup(conns *handover.Conns, name string, restorer Restorer) *Group {
	if conns == nil {
		panic("wsadapter: NewGroup was called with a nil *handover.Conns")
	}
	g := &Group{conns: conns, restorer: restorer, all: make(map[*conn]struct{})}
	g.arrivals.slots = make(chan struct{}, restoresMax)
	if restorer != nil {
		conns.Carry(name, carrier{g})
	}
	return g
}

// NewUpgrade is [wsadapter.NewUpgrade] for a conversation of the Group. It uses r's header as it is now.
//
// A Write to the connection waits for a moment while the conversation is about to move, whatever the
// write deadline is, and fails with [ErrMoved] once it has moved. A Close at that moment ends the
// connection, whichever process has it.
//
// The Group keeps the header, with all cookies, for as long as the conversation lasts: delete the fields
// that the Restorer doesn't need from r.Header first. A conversation whose header is longer than 16 KiB
// stays.
func (g *Group) NewUpgrade(w http.ResponseWriter, r *http.Request) *wsadapter.Upgrade {
	if w == nil || r == nil {
		panic("wsadapter: NewUpgrade was called with a nil http.ResponseWriter or *http.Request")
	}
	c := &conn{group: g, state: staying, request: requestText(r), shaking: new(handshake)}
	return wsadapter.NewUpgrade(&upgrade{wsadapter.NewUpgrade(w), c})
}

// members returns all conversations.
func (g *Group) members() []*conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.all))
}

// carrier is a Group for package handover.
type carrier struct{ group *Group }

var _ handover.Carrier = carrier{}
