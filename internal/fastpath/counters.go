package fastpath

import "sync/atomic"

// The counters of the process. Each is added to once per system call at most,
// which costs nothing next to the call.
var (
	SendfileBytes atomic.Uint64 // sent from files
	SpliceBytes   atomic.Uint64 // that arrived at their destination
	CopiedBytes   atomic.Uint64 // by ReadFrom and WriteTo, through a buffer
	WritevBytes   atomic.Uint64
	WritevCalls   atomic.Uint64 // system calls
)
