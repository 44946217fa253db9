package zerocopy

import "github.com/percore/percore/internal/features"

// Stats counts the bytes that went each way since the program started, and the pipes, for the whole
// process; percore.ReadStats returns it. The counts of bytes and calls only grow.
type Stats struct {
	SendfileBytes uint64 // bytes sent by sendfile
	SpliceBytes   uint64 // bytes that arrived by splice
	CopiedBytes   uint64 // bytes that ReadFrom and WriteTo of a percore.Conn, or Splice, moved through a buffer
	WritevBytes   uint64 // bytes written by writev
	WritevCalls   uint64 // the writev calls for these

	PipesOpen int // pipes to splice through that are open now
	PipesIdle int // of these: unused
}

// FeatureState is whether one of the kernel's features is used.
type FeatureState struct {
	Name   string // as in PERCOREDEBUG
	On     bool
	WhyOff string // "" if it is on
}

// Features returns the state of each feature.
func Features() []FeatureState {
	states := make([]FeatureState, 0, len(features.All))
	for _, f := range features.All {
		why := f.WhyOff()
		states = append(states, FeatureState{Name: f.Name(), On: why == "", WhyOff: why})
	}
	return states
}
