package percore

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/features"
	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/pipes"
	buffers "github.com/percore/percore/internal/pool"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
	"github.com/percore/percore/zerocopy"
)

// Stats describes the work of percore in this process since it was started. Fields keep their names
// and units. Counters (of type uint64, and times) only grow: closed listeners, ended groups of
// loops and stopped servers stay in the sums. The other fields describe the present.
//
// The values are read one after the other, not at one instant: a connection that is accepted at that
// time may be in one sum and not yet in another.
//
// encoding/json turns it into an object whose keys are the names of the fields; times are in
// nanoseconds.
type Stats struct {
	Conns  int    // connections that are open, accepted and dialed
	Dialed uint64 // connections that a Dialer made
	Closed uint64 // connections that were closed, by their users or by the garbage collector

	Accept    AcceptStats     // sums over all listeners, closed ones included
	Listeners []ListenerStats // the open ones, in the order in which they were opened

	Loops    loop.ProcessStats // the default group and all others
	ZeroCopy zerocopy.Stats    // bytes that the kernel moved by itself, and those that were copied
	Pool     pool.Stats        // the default pool of buffers
	Adapters []AdapterStats    // the adapters that the program imports, by name
}

// AcceptStats counts the connections that listeners have accepted, and failures, from which a
// listener recovers by itself.
type AcceptStats struct {
	Accepted uint64 // connections accepted from the kernel
	Adopted  uint64 // connections taken over from another process by package handover
	Backoffs uint64 // how often Accept waited for lack of descriptors or memory

	LimitWaits uint64 // how often Accept began to wait because ListenConfig.MaxConns connections were open
	MadeRoom   uint64 // idle connections that were closed because MaxConns were open and a client waited
	Refused    uint64 // connections that ListenConfig.OnAccept did not want, or whose peer ProxyProtocol does not trust
	BadHeaders uint64 // connections that were closed because of their PROXY header

	// Connections that were lost before Accept could return them, by the kernel's reason: the next
	// one is accepted instead.

	SkippedAborted  uint64 // the peer was gone (ECONNABORTED)
	SkippedProtocol uint64 // a protocol error (EPROTO)
	SkippedNetwork  uint64 // a network error that was pending on the connection (ENETDOWN and others of accept(2))
}

// ListenerStats describes the work of a listener. The listeners that [Listener.PerLoop] returns
// count as the one that they were made from.
type ListenerStats struct {
	Network string // as it was asked for: "tcp", "tcp4", "tcp6", "unix"
	Address string
	Group   string // the name of the group of loops (loop.Stats), which may be shared with other listeners
	Sockets int    // listening sockets
	Conns   int    // its open connections, including those whose PROXY header is awaited

	// MaxConns is ListenConfig.MaxConns; 0 means no limit. Conns count towards it. With httpadapter and
	// others that can make room, a listener may be at the limit while no client waits: see Full.
	MaxConns int

	// Full says that Accept is waiting for room: MaxConns connections are open, and none of them could
	// be closed for a client. Where nothing can make room, Full is set even before a client comes.
	Full bool

	AwaitingHeader int // connections whose PROXY header is awaited

	AcceptStats
}

// ReadStats returns the counts of the process. It may be called by any goroutine at any time. It
// doesn't hold up requests, except that a request for which the pool has to allocate a buffer waits
// while the pool counts. It takes a few microseconds, and some 50 ns for each listener, loop and
// buffer.
//
// A program that imports expvar publishes them with one call:
//
//	expvar.Publish("percore", expvar.Func(func() any { return percore.ReadStats() }))
//
// Packages metrics/prometheus, a module of its own, and debug show them in other ways.
//
// Off Linux, and with the build tag percore_net, there are no loops, and package net's listeners and
// connections are not counted: only Pool and Adapters count, and ZeroCopy has the bytes copied.
func ReadStats() Stats {
	closed := conns.closed.Load() // first, or more would seem to be closed than were opened
	s := Stats{
		Conns:    int(conns.opened.Load() - closed),
		Dialed:   conns.dialed.Load(),
		Closed:   closed,
		Accept:   acceptStats(&accepting.Totals),
		Loops:    loopStats(),
		ZeroCopy: zeroCopyStats(),
		Pool:     pool.Stats(buffers.ReadStats()),
		Adapters: readAdapters(),
	}
	for _, l := range listeners.all() {
		s.Listeners = append(s.Listeners, l.stats())
	}
	return s
}

func zeroCopyStats() zerocopy.Stats {
	open, idle := pipes.Count()
	return zerocopy.Stats{
		SendfileBytes: features.SendfileBytes.Load(),
		SpliceBytes:   features.SpliceBytes.Load(),
		CopiedBytes:   features.CopiedBytes.Load(),
		WritevBytes:   features.WritevBytes.Load(),
		WritevCalls:   features.WritevCalls.Load(),
		PipesOpen:     open,
		PipesIdle:     idle,
	}
}

func loopStats() loop.ProcessStats {
	sums, groups := engine.ReadStats()
	s := loop.ProcessStats{Counts: loop.Counts(sums)}
	for _, g := range groups {
		s.Groups = append(s.Groups, (*loop.Group)(g).Stats())
	}
	return s
}

// conns counts the connections of the process.
var conns struct{ opened, closed, dialed atomic.Uint64 }

// acceptStats reads the counters of a listener, or of the process.
func acceptStats(n *accepting.Counts) AcceptStats {
	return AcceptStats{
		Accepted:        n.Load(accepting.Accepted),
		Adopted:         n.Load(accepting.Adopted),
		Backoffs:        n.Load(accepting.Backoffs),
		LimitWaits:      n.Load(accepting.LimitWaits),
		MadeRoom:        n.Load(accepting.MadeRoom),
		Refused:         n.Load(accepting.Refused),
		BadHeaders:      n.Load(accepting.BadHeaders),
		SkippedAborted:  n.Load(accepting.SkippedAborted),
		SkippedProtocol: n.Load(accepting.SkippedProtocol),
		SkippedNetwork:  n.Load(accepting.SkippedNetwork),
	}
}

// openListeners are the open listeners of the process. It doesn't refer to a Listener, so the
// garbage collector can find lost ones.
type openListeners struct {
	mu   sync.Mutex
	open []*listener
}

var listeners openListeners

func (ls *openListeners) add(l *listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.open = append(ls.open, l)
}

func (ls *openListeners) remove(l *listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.open = slices.DeleteFunc(ls.open, func(o *listener) bool { return o == l })
}

func (ls *openListeners) all() []*listener {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Clone(ls.open)
}
