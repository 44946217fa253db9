package accepting

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// Config holds a listener's options for the connections that it accepts: see percore.ListenConfig.
type Config struct {
	MaxConns int                                          // 0: no limit
	OnAccept func(local, remote netip.AddrPort) (ok bool) // may be nil
	OnClose  func(local, remote netip.AddrPort)           // may be nil
	Proxy    *ProxyConfig                                 // nil: no headers are expected
}

// Check returns an error if the options are wrong for a listener on the network.
func (c *Config) Check(network string) error {
	switch {
	case c.MaxConns < 0:
		return fmt.Errorf("MaxConns is %d: want 0, for no limit, or more", c.MaxConns)
	case c.Proxy != nil:
		return c.Proxy.check(network)
	}
	return nil
}

// IsZero reports whether no options are set.
func (c *Config) IsZero() bool {
	return c.MaxConns == 0 && c.OnAccept == nil && c.OnClose == nil && c.Proxy == nil
}

// Limits decides which connections a listener accepts, and counts the open ones. The listener and
// its connections share it. A nil *Limits allows everything and counts nothing.
//
// A connection takes a slot before accept(2) is called, and frees it once its descriptor is closed. No
// slot is held while Accept waits, because the next connection may arrive on another socket. A wake-up
// can't be lost: Accept sets full before it checks open for the last time, and closing a connection
// first changes open and then checks full.
type Limits struct {
	// immutable
	max      int64 // 0: no limit
	onAccept func(local, remote netip.AddrPort) bool
	onClose  func(local, remote netip.AddrPort)
	wake     func() // makes all calls of Accept look again
	counts   *Counts

	// atomic
	open atomic.Int64 // slots that are taken
	full atomic.Bool  // Accept found no slot: the next one that is freed calls wake

	room room
}

// Limits returns the limits of a listener with the given counters, or nil if nothing is limited.
// wake makes all calls of Accept look again.
func (c *Config) Limits(counts *Counts, wake func()) *Limits {
	if c.IsZero() {
		return nil
	}
	return &Limits{max: int64(c.MaxConns), onAccept: c.OnAccept, onClose: c.OnClose, wake: wake, counts: counts}
}

func (l *Limits) isFull() bool { return l.open.Load() >= l.max }

// IsWaiting reports whether Accept is waiting for a slot because a client has come that can't have
// one. Without Idlers Accept waits even before a client has come: it can't tell.
func (l *Limits) IsWaiting() bool {
	if l == nil || !l.full.Load() || !l.isFull() {
		return false
	}
	return !l.room.any.Load() || l.room.clientWaits()
}

// take takes a slot. It returns false if no slot is free.
func (l *Limits) take() bool {
	for {
		open := l.open.Load()
		if l.max > 0 && open >= l.max {
			return false
		}
		if l.open.CompareAndSwap(open, open+1) {
			return true
		}
	}
}

// Force takes a slot even if all are taken.
func (l *Limits) Force() {
	if l != nil {
		l.open.Add(1)
	}
}

// Release frees a slot, and wakes Accept if it waits for one.
func (l *Limits) Release() {
	if l == nil {
		return
	}
	l.open.Add(-1)
	l.room.released()
	if l.full.Load() && l.full.Swap(false) {
		l.room.stopWaiting()
		l.wake()
	}
}

// WantsAddrs reports whether OnAccept or OnClose wants the addresses of connections.
func (l *Limits) WantsAddrs() bool { return l != nil && (l.onAccept != nil || l.onClose != nil) }

// Admit asks OnAccept whether the connection is wanted. If it isn't, or OnAccept panics, Admit calls
// refuse, which closes the connection and frees its slot.
func (l *Limits) Admit(local, remote netip.AddrPort, refuse func()) (wanted bool) {
	if l == nil || l.onAccept == nil {
		return true
	}
	defer func() {
		if !wanted {
			refuse()
		}
	}()
	if l.onAccept(local, remote) {
		return true
	}
	l.counts.Add(Refused)
	return false
}

// Closed calls OnClose for a connection that was admitted, and frees its slot. It frees the slot
// second, so that a call of Accept that waits for it finds the user's own count up to date.
func (l *Limits) Closed(local, remote netip.AddrPort) {
	defer l.Release()
	if l != nil && l.onClose != nil {
		l.onClose(local, remote)
	}
}

// Max returns how many slots there are; 0: no limit.
func (l *Limits) Max() int {
	if l == nil {
		return 0
	}
	return int(l.max)
}

// Open returns how many slots are taken.
func (l *Limits) Open() int {
	if l == nil {
		return 0
	}
	return int(l.open.Load())
}
