package hpack

// A table is a dynamic table (RFC 7541, section 2.3.2). Its entries begin at head, the oldest first; the
// free room before head is used again when the slice is full. A Decoder's entries are pointers, and
// never change, because tables of other connections may share them. An Encoder has its own.
type table[E interface{ Size() int }] struct {
	entries []E
	head    int32
	size    uint32 // bytes, as RFC 7541 counts
	max     uint32 // of size, which the peer chooses
	limit   uint32 // of max
}

func (t *table[E]) len() int { return len(t.entries) - int(t.head) }

func (t *table[E]) setMax(max uint32) {
	t.max = max
	t.evict(0)
	if t.len() == 0 {
		t.entries, t.head = nil, 0
	}
}

// evict takes the oldest entries out until there are need bytes of room, or none are left.
func (t *table[E]) evict(need uint32) {
	for t.len() > 0 && t.size+need > t.max {
		t.size -= uint32(t.entries[t.head].Size())
		clear(t.entries[t.head : t.head+1])
		t.head++
	}
}

func (t *table[E]) clear() { t.evict(t.max + 1) }

// entriesFirst is the room that a table begins with. Most clients' first requests fill half of it or
// more.
const entriesFirst = 4

// add puts an entry into the table. One that is larger than the table empties it (RFC 7541, section
// 4.4).
func (t *table[E]) add(e E) {
	n := uint32(e.Size())
	if t.evict(n); n > t.max {
		return
	}
	t.makeRoom()
	if t.entries == nil {
		t.entries = make([]E, 0, entriesFirst)
	}
	t.entries = append(t.entries, e)
	t.size += n
}

// trim makes the slice as long as the entries are.
func (t *table[E]) trim() {
	if n := t.len(); n < cap(t.entries) {
		t.entries, t.head = append(make([]E, 0, n), t.entries[t.head:]...), 0
	}
}

// makeRoom moves the entries to the beginning of the slice if it is full and a quarter of it is free.
// So an entry is moved three times at most on average, and a table that turns over doesn't grow.
func (t *table[E]) makeRoom() {
	if len(t.entries) < cap(t.entries) || int(t.head) <= cap(t.entries)/4 {
		return
	}
	n := copy(t.entries, t.entries[t.head:])
	clear(t.entries[n:])
	t.entries, t.head = t.entries[:n], 0
}
