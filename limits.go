package percore

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
)

// admission is a listener's rules about the connections that it takes, and their count. The
// listener and its connections share it; nil is a listener without rules.
//
// A connection takes a place before the kernel is asked for it, and gives it back once its
// descriptor is closed. No place is held while Accept waits: another socket's connection may be
// the next. A wake-up can't be lost: Accept sets full before it looks at open for the last time,
// and a connection that is closed changes open first and looks at full after.
type admission struct {
	// immutable
	max      int64  // 0: no limit
	wake     func() // makes all calls of Accept look again
	onAccept func(local, remote netip.AddrPort) bool
	onClose  func(local, remote netip.AddrPort)

	// atomic
	open    atomic.Int64  // places that are taken
	full    atomic.Bool   // Accept found no place; the next one that is given back calls wake
	waits   atomic.Uint64 // times that full was set
	refused atomic.Uint64 // connections that onAccept did not want
}

// check finds mistakes in the options about admission.
func (lc *ListenConfig) check(network string) error {
	var err error
	if lc.MaxConns < 0 {
		err = fmt.Errorf("MaxConns is %d: want 0, for no limit, or more", lc.MaxConns)
	} else if lc.ProxyProtocol != nil {
		err = lc.ProxyProtocol.check(network)
	}
	if err != nil {
		return &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return nil
}

// checkForeign fails if there are rules for a listener that is package net's.
func (lc *ListenConfig) checkForeign(network string) error {
	if !lc.hasAdmission() {
		return nil
	}
	err := errors.New("MaxConns, OnAccept, OnClose and ProxyProtocol are for the networks tcp and unix")
	return &net.OpError{Op: "listen", Net: network, Err: err}
}

func (lc *ListenConfig) hasAdmission() bool {
	return lc.MaxConns != 0 || lc.OnAccept != nil || lc.OnClose != nil || lc.ProxyProtocol != nil
}

// admission returns the rules for a listener, or nil if there are none.
func (lc *ListenConfig) admission(wake func()) *admission {
	if !lc.hasAdmission() {
		return nil
	}
	return &admission{max: int64(lc.MaxConns), wake: wake, onAccept: lc.OnAccept, onClose: lc.OnClose}
}

// hasRoom reports whether there is a place. If not, wake is called when there is.
func (a *admission) hasRoom() bool {
	if a == nil || a.max == 0 || a.open.Load() < a.max {
		return true
	}
	if !a.full.Swap(true) {
		a.waits.Add(1)
		acceptTotals[countLimitWait].Add(1)
	}
	return a.open.Load() < a.max
}

// acquire takes a place, and reports false if there is none.
func (a *admission) acquire() bool {
	if a == nil {
		return true
	}
	for {
		open := a.open.Load()
		if a.max > 0 && open >= a.max {
			return false
		}
		if a.open.CompareAndSwap(open, open+1) {
			return true
		}
	}
}

// take takes a place whether there is one or not.
func (a *admission) take() {
	if a != nil {
		a.open.Add(1)
	}
}

// release gives a place back.
func (a *admission) release() {
	if a == nil {
		return
	}
	a.open.Add(-1)
	if a.full.Load() && a.full.Swap(false) {
		a.wake()
	}
}

// asks reports whether the user's function is to be asked about each connection.
func (a *admission) asks() bool { return a != nil && a.onAccept != nil }

// admits asks the user, and counts.
func (a *admission) admits(local, remote netip.AddrPort) bool {
	if a.onAccept(local, remote) {
		return true
	}
	a.refused.Add(1)
	acceptTotals[countRefused].Add(1)
	return false
}

// tells reports whether the user wants to be told of each connection that is closed.
func (a *admission) tells() bool { return a != nil && a.onClose != nil }

// closed tells the user, and gives the place of an admitted connection back: in this order, so that
// a call of Accept that waits for the place finds the user's count up to date.
func (a *admission) closed(local, remote netip.AddrPort) {
	defer a.release()
	if a.tells() {
		a.onClose(local, remote)
	}
}

// addTo fills in the counters.
func (a *admission) addTo(s *ListenerStats) {
	if a != nil {
		s.Open, s.LimitWaits, s.Refused = int(a.open.Load()), a.waits.Load(), a.refused.Load()
	}
}
