package fastpath

import "sync/atomic"

// The counters of the process. Each is added to once per system call at most,
// which costs nothing next to the call.
var (
	SendfileBytes     atomic.Uint64 // sent from files
	SendfileTransfers atomic.Uint64 // calls that sendfile took on
	SendfileDeclined  atomic.Uint64 // calls it gave back with nothing consumed

	SpliceBytes     atomic.Uint64 // that arrived at their destination
	SpliceTransfers atomic.Uint64
	SpliceDeclined  atomic.Uint64

	PipesMade   atomic.Uint64
	PipesClosed atomic.Uint64

	CopiedBytes atomic.Uint64 // by ReadFrom and WriteTo, through a buffer

	WritevBytes atomic.Uint64
	WritevCalls atomic.Uint64 // system calls
)
