package h1

// connSet is a set of connections. A connection is in at most one set; Conn.index is its place there.
// The set is in chunks, so that growing, shrinking and looking through it (see slice) hold the lock for
// a moment only, however many connections there are.
type connSet struct {
	chunks []*[connsPerChunk]*Conn // one more than needed may be kept
	len    int
}

// connsPerChunk makes a chunk a kilobyte.
const connsPerChunk = 128

// at returns place i.
func (s *connSet) at(i int) **Conn { return &s.chunks[i/connsPerChunk][i%connsPerChunk] }

func (s *connSet) add(c *Conn) {
	if s.len == len(s.chunks)*connsPerChunk {
		s.chunks = append(s.chunks, new([connsPerChunk]*Conn))
	}
	c.index = int32(s.len)
	*s.at(s.len) = c
	s.len++
}

// remove removes c from s if it is there. The last connection takes its place.
func (s *connSet) remove(c *Conn) {
	i := int(c.index)
	if i < 0 || i >= s.len || *s.at(i) != c {
		return
	}
	s.len--
	last := s.at(s.len)
	(*last).index = c.index
	*s.at(i), *last = *last, nil
	c.index = -1
	if spare := len(s.chunks) - 1; s.len+connsPerChunk <= spare*connsPerChunk {
		s.chunks[spare] = nil
		s.chunks = s.chunks[:spare]
	}
}

// slice copies a part of s, the last that ends at or below place end, to p. It returns
// how many connections that are and the end for the next slice, which is 0 after the last.
//
// From the end to the beginning no connection is missed that is in s all the time, even
// if others join and leave between two slices: joining is done above, and leaving moves a
// connection from above to a place that may still be to come. So one may come twice.
func (s *connSet) slice(p *[connsPerChunk]*Conn, end int) (n, next int) {
	end = min(end, s.len)
	if end == 0 {
		return 0, 0
	}
	next = (end - 1) / connsPerChunk * connsPerChunk
	return copy(p[:], s.chunks[next/connsPerChunk][:end-next]), next
}
