package h1

// kept has the bytes that were read from a connection that waits: they are not a whole header, or lie
// behind a request whose answer is detached. Most connections have none. It belongs to the worker that
// has the connection, and to the loop while the connection waits.
type kept struct {
	bytes []byte    // the connection's own
	odd   oddHeader // how far the header was looked at, if it is odd
	dated bool      // the deadline for the header was set
}

// hasBytes reports whether there are any, or were: of a header that has begun. k may be nil.
func (k *kept) hasBytes() bool { return k != nil }

// takeKept returns what was kept, and forgets it.
func (c *Conn) takeKept() (k kept) {
	if c.kept != nil {
		k, c.kept = *c.kept, nil
	}
	return k
}
