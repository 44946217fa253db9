package handover

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Conns is a set of connections that a server's Shutdown doesn't know: WebSockets, tunnels, and others
// that a handler has hijacked. Its zero value is ready to use, and its methods are safe for concurrent
// use.
//
//	leave := conns.Add(func() {
//		ws.WriteControl(websocket.CloseMessage, goingAway, time.Now().Add(time.Second))
//	})
//	defer leave() // when the conversation is over
//
// Each connection costs the function and about a hundred bytes.
type Conns struct {
	// Spread is the time over which Shutdown tells the connections to end, so that clients don't all
	// connect again at the same moment. 0 means the first half of the time until Shutdown's ctx ends, or
	// no time if it never does, but at most a tenth of a second for each connection. Below 0 the
	// connections are not told: they stay until they end by themselves, or until ctx ends. Spread must
	// not change after the first call of a method.
	Spread time.Duration

	mu sync.Mutex

	// guarded by mu
	all     map[*hijacked]struct{}
	carry   map[string]Carrier
	leaving bool          // Shutdown was called: connections that are added are told at once
	empty   chan struct{} // made by Shutdown, closed when the last connection has ended
}

// hijacked is a connection of a Conns.
type hijacked struct {
	tell func() // guarded by Conns.mu; nil once it is about to be called
}

// Add adds a connection. tell is called at most once, on a goroutine of its own, when Shutdown wants
// the connection to end. It should send what the protocol has for that, such as the WebSocket close
// codes 1001 or 1012 (RFC 6455, section 7.4), and may block for a moment. The caller must call remove,
// at least once, when the connection has ended: Shutdown waits for that. If Shutdown was already
// called, tell is called at once. Add panics if tell is nil.
func (s *Conns) Add(tell func()) (remove func()) {
	if tell == nil {
		panic(errNil("Conns.Add", "tell", "a function that makes the connection end").Error())
	}
	h := &hijacked{tell}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*hijacked]struct{})
	}
	s.all[h] = struct{}{}
	if s.leaving && s.Spread >= 0 {
		s.tellLocked(h)
	}
	return func() { s.remove(h) }
}

func (s *Conns) remove(h *hijacked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[h]; !ok {
		return
	}
	delete(s.all, h)
	if len(s.all) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// Len returns how many connections there are.
func (s *Conns) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// Shutdown tells the connections to end, in a random order and spread over time: see Spread. It
// returns nil when no connection is left, or ctx's error if ctx ends first. It can be called again,
// for connections that were added since, but not at the same time.
func (s *Conns) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNil("Conns.Shutdown", "ctx", aContext)
	}
	empty, rest := s.begin()
	ticker := time.NewTicker(spreadTick)
	defer ticker.Stop()
	tick := ticker.C
	count := len(rest)
	begin, spread := time.Now(), s.spread(ctx, count)
	for {
		left := count - due(count, time.Since(begin), spread)
		s.tell(rest[left:])
		if rest = rest[:left]; left == 0 {
			tick = nil
		}
		select {
		case <-empty:
			return nil
		case <-ctx.Done():
			if s.Len() == 0 { // too
				return nil
			}
			return ctx.Err()
		case <-tick:
		}
	}
}

// spreadTick is the time between two groups of connections that are told to end.
const spreadTick = 10 * time.Millisecond

// begin makes new connections be told at once. It returns the others that are to be told, in a random
// order, and the channel that is closed when no connection is left.
func (s *Conns) begin() (empty chan struct{}, rest []*hijacked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	empty = make(chan struct{})
	if len(s.all) == 0 {
		close(empty)
		return empty, nil
	}
	s.empty = empty
	if s.Spread >= 0 {
		rest = slices.Collect(maps.Keys(s.all))
		rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	}
	return empty, rest
}

// spreadEach is how long each connection may delay the end of a server with few connections: ten
// clients that connect again within a second are no load.
const spreadEach = 100 * time.Millisecond

// spread returns the time over which count connections are told.
func (s *Conns) spread(ctx context.Context, count int) time.Duration {
	if s.Spread != 0 {
		return s.Spread
	}
	end, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return min(time.Until(end)/2, time.Duration(count)*spreadEach)
}

// due returns how many of count connections are to be told within the first part of the spread: one at
// once, so that a server with few connections ends soon.
func due(count int, part, spread time.Duration) int {
	if part >= spread {
		return count
	}
	return min(count, 1+int(float64(count)*float64(part)/float64(spread)))
}

// tell tells connections to end, except those that have ended since.
func (s *Conns) tell(rest []*hijacked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range rest {
		if _, ok := s.all[h]; ok {
			s.tellLocked(h)
		}
	}
}

// tellLocked tells a connection to end, unless it was told before.
func (s *Conns) tellLocked(h *hijacked) {
	if h.tell != nil {
		go h.tell()
		h.tell = nil
	}
}
