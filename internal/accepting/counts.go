// Package accepting contains the code for accepting connections that percore's engine shares with its
// fallback on package net: a listener's counters, its limits, and its rules for the PROXY protocol.
package accepting

import "sync/atomic"

// Counts holds the counters of a listener, indexed by Counter. They only grow.
type Counts [counters]atomic.Uint64

// Counter is the index of a counter. Percore's AcceptStats describes each.
type Counter uint8

// The counters.
const (
	Accepted Counter = iota
	Adopted
	Backoffs
	LimitWaits
	MadeRoom
	Refused
	BadHeaders
	SkippedAborted
	SkippedProtocol
	SkippedNetwork

	counters = iota
)

// Totals are the sums over all listeners of the process.
var Totals Counts

// Add adds 1 to a counter of the listener, and to the same counter in Totals.
func (n *Counts) Add(c Counter) {
	n[c].Add(1)
	Totals[c].Add(1)
}

// Load returns the value of a counter.
func (n *Counts) Load(c Counter) uint64 { return n[c].Load() }
