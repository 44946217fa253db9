package reactor

import (
	"net"
	"sync"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/shared/counters"
)

// backlog has the bytes that a socket has not taken yet: parts, in order, each in a buffer of the pool.
type backlog struct {
	parts []part
	bytes int // in all parts

	// the part of it that is in the counts, while its connection is blocked
	countedBytes int
	countedIn    *counters.Cell[counter] // nil if it isn't counted
}

// part is bytes in a buffer, to which it holds a reference.
type part struct {
	buffer *pool.Buffer
	bytes  []byte // not sent yet; behind them is room for more, unless the buffer is shared
	shared bool
}

const (
	// partsPerSend is how many parts go into one system call.
	partsPerSend = 16

	// partBytesMin and partBytesMax bound a part's buffer: many small writes share one, and a long
	// write is spread over several.
	partBytesMin = 4 << 10
	partBytesMax = 64 << 10

	// partsKept is the longest list of parts that is kept for the next backlog.
	partsKept = 64
)

var backlogs = sync.Pool{New: func() any { return new(backlog) }}

func newBacklog() *backlog { return backlogs.Get().(*backlog) }

// count brings the counts of a loop up to date with the backlog.
func (b *backlog) count(in *counters.Cell[counter]) {
	if b.countedIn == nil {
		b.countedIn = in
		in.Add(countBlocked, 1)
	}
	in.Add(countUnsent, int64(b.bytes-b.countedBytes))
	b.countedBytes = b.bytes
}

// uncount takes the backlog out of the counts.
func (b *backlog) uncount() {
	if b.countedIn != nil {
		b.countedIn.Add(countUnsent, -int64(b.countedBytes))
		b.countedIn.Add(countBlocked, -1)
		b.countedBytes, b.countedIn = 0, nil
	}
}

// release gives the backlog and all its buffers back.
func (b *backlog) release() {
	b.uncount()
	for i := range b.parts {
		b.parts[i].buffer.Release()
	}
	if cap(b.parts) > partsKept {
		b.parts = nil
	}
	clear(b.parts)
	b.parts = b.parts[:0]
	b.bytes = 0
	backlogs.Put(b)
}

// append copies p to the end.
func (b *backlog) append(p []byte) {
	b.bytes += len(p)
	if last := len(b.parts) - 1; last >= 0 && !b.parts[last].shared {
		tail := &b.parts[last]
		n := min(len(p), cap(tail.bytes)-len(tail.bytes))
		tail.bytes = append(tail.bytes, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		var new part
		new, p = partOf(p)
		b.parts = append(b.parts, new)
	}
}

// partOf copies the beginning of p, and returns the rest.
func partOf(p []byte) (part, []byte) {
	buffer := pool.Get(min(max(len(p), partBytesMin), partBytesMax))
	room := buffer.Bytes()
	n := copy(room, p)
	return part{buffer: buffer, bytes: room[:n]}, p[n:]
}

// add adds the bytes of p at the end, except the first sent ones. A few bytes of a shared buffer are
// copied, since the buffer may take ten times the memory of its bytes. They are not copied if nothing
// else waits: that is so for most receivers of a short message to many, and takes less memory than a
// part of our own.
func (b *backlog) add(shared *pool.Buffer, sent int, p ...[]byte) {
	for _, q := range p {
		skip := min(sent, len(q))
		sent -= skip
		q = q[skip:]
		if shared == nil || len(q) < partBytesMin && len(b.parts) > 0 {
			b.append(q)
			continue
		}
		shared.Retain()
		b.bytes += len(q)
		b.parts = append(b.parts, part{shared, q, true})
	}
}

// addFront is add at the front.
func (b *backlog) addFront(shared *pool.Buffer, sent int, p ...[]byte) {
	rest := b.parts
	b.parts = nil
	b.add(shared, sent, p...)
	b.parts = append(b.parts, rest...)
}

// front appends the first parts' bytes to v, as many as fit.
func (b *backlog) front(v [][]byte) net.Buffers {
	for i := range b.parts[:min(len(b.parts), cap(v))] {
		v = append(v, b.parts[i].bytes)
	}
	return v
}

// drop takes n bytes, which were sent, away from the front.
func (b *backlog) drop(n int) {
	b.bytes -= n
	sent := 0
	for ; n > 0 && n >= len(b.parts[sent].bytes); sent++ {
		n -= len(b.parts[sent].bytes)
		b.parts[sent].buffer.Release()
	}
	if n > 0 {
		b.parts[sent].bytes = b.parts[sent].bytes[n:]
	}
	if sent > 0 {
		left := copy(b.parts, b.parts[sent:])
		clear(b.parts[left:])
		b.parts = b.parts[:left]
	}
}
