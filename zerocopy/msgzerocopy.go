package zerocopy

// Buffer is reference-counted memory, such as a *pool.Buffer. Retain adds a
// reference and Release gives one up. Both must be safe for concurrent use and
// must not block.
type Buffer interface {
	Retain()
	Release()
}

// Holder keeps a descriptor open and has its error queue looked at until as many
// holds have ended as there were, such as a *loop.FD. Both methods must be safe for
// concurrent use and must not block.
type Holder interface {
	Hold()
	Unhold(n int)
}
