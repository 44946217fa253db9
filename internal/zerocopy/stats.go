package zerocopy

import (
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/pipes"
)

// Stats counts the bytes by their way. The public Stats has the same fields, and says what they mean.
type Stats struct {
	SendfileBytes uint64
	SpliceBytes   uint64
	CopiedBytes   uint64
	WritevBytes   uint64
	WritevCalls   uint64

	PipesOpen int
	PipesIdle int
}

// ReadStats returns the counters, one after the other.
func ReadStats() Stats {
	open, idle := pipes.Count()
	return Stats{
		SendfileBytes: features.SendfileBytes.Load(),
		SpliceBytes:   features.SpliceBytes.Load(),
		CopiedBytes:   features.CopiedBytes.Load(),
		WritevBytes:   features.WritevBytes.Load(),
		WritevCalls:   features.WritevCalls.Load(),
		PipesOpen:     open,
		PipesIdle:     idle,
	}
}
