package zerocopy

import (
	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/internal/pipes"
)

// Stats counts the bytes by their way since the program started. The counts are of
// the whole process and only grow, except PipesIdle.
type Stats struct {
	SendfileBytes     uint64 // bytes sent by sendfile
	SendfileTransfers uint64 // transfers that sendfile handled
	SendfileDeclined  uint64 // transfers it did not, with nothing consumed

	SpliceBytes     uint64 // bytes that arrived by splice
	SpliceTransfers uint64 // transfers that splice handled
	SpliceDeclined  uint64 // transfers it did not, with nothing consumed

	PipesMade   uint64 // pipes made to splice through
	PipesClosed uint64 // of these: closed again
	PipesIdle   int    // pipes that are open and unused now

	CopiedBytes uint64 // bytes that ReadFrom and WriteTo of a percore.Conn, or Splice, moved through a buffer

	WritevBytes uint64 // bytes written by writev
	WritevCalls uint64 // system calls that took
}

// ReadStats returns the counters. The counts are not taken at one instant.
func ReadStats() Stats {
	return Stats{
		SendfileBytes:     fastpath.SendfileBytes.Load(),
		SendfileTransfers: fastpath.SendfileTransfers.Load(),
		SendfileDeclined:  fastpath.SendfileDeclined.Load(),

		SpliceBytes:     fastpath.SpliceBytes.Load(),
		SpliceTransfers: fastpath.SpliceTransfers.Load(),
		SpliceDeclined:  fastpath.SpliceDeclined.Load(),

		PipesMade:   fastpath.PipesMade.Load(),
		PipesClosed: fastpath.PipesClosed.Load(),
		PipesIdle:   pipes.Idle(),

		CopiedBytes: fastpath.CopiedBytes.Load(),

		WritevBytes: fastpath.WritevBytes.Load(),
		WritevCalls: fastpath.WritevCalls.Load(),
	}
}

// FeatureState is whether one of the kernel's features is used.
type FeatureState struct {
	Name   string // as in PERCOREDEBUG
	On     bool
	WhyOff string // "" if it is on
}

// Features returns the state of each feature.
func Features() []FeatureState {
	states := make([]FeatureState, 0, len(fastpath.All))
	for _, f := range fastpath.All {
		why := f.WhyOff()
		states = append(states, FeatureState{Name: f.Name(), On: why == "", WhyOff: why})
	}
	return states
}

// CloseIdlePipes closes the pipes that are kept for later transfers. They are
// closed anyway when they have been unused for some seconds.
func CloseIdlePipes() { pipes.Drain() }
