// Package accepting has the parts of accepting connections that percore's engine and its fallback on
// package net share: the counters of a listener, its limits, and its rules for the PROXY protocol.
package accepting

import "sync/atomic"

// Counts are the counters of a listener, by Counter. They only grow.
type Counts [counters]atomic.Uint64

// Counter is the index of a counter. Percore's AcceptStats describes each.
type Counter uint8

// The counters.
const (
	Accepted Counter = iota
	Adopted
	Backoffs
	LimitWaits
	Refused
	BadHeaders
	SkippedAborted
	SkippedProtocol
	SkippedNetwork

	counters = iota
)

// Totals are the sums over all listeners of the process.
var Totals Counts

// Add adds 1 to a counter of a listener, and to that of the process.
func (n *Counts) Add(c Counter) {
	n[c].Add(1)
	Totals[c].Add(1)
}

// Load returns the value of a counter.
func (n *Counts) Load(c Counter) uint64 { return n[c].Load() }
