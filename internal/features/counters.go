package features

import "sync/atomic"

// The process's counters. Each is added to at most once per system call, which costs nothing
// compared to the call.
var (
	SendfileBytes atomic.Uint64 // sent from files
	SpliceBytes   atomic.Uint64 // that reached their destination
	CopiedBytes   atomic.Uint64 // by ReadFrom and WriteTo, through a buffer
	WritevBytes   atomic.Uint64
	WritevCalls   atomic.Uint64 // system calls
)
