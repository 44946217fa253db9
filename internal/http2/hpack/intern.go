package hpack

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// An Interner returns the same Field for equal ones, and the same Name for equal names, so that the
// tables of many connections share them. It holds 512 of each, of at most 192 bytes. A new one replaces
// an older one, so a client that sends many different ones costs the others only the saving. A server
// has one. Its methods may be called by several goroutines at once, and on a nil Interner.
type Interner struct {
	seed   maphash.Seed
	fields [internedMax]atomic.Pointer[Field]
	names  [internedMax]atomic.Pointer[Name]
}

const (
	internedMax      = 512
	internedBytesMax = 192
)

// NewInterner returns an empty Interner.
func NewInterner() *Interner { return &Interner{seed: maphash.MakeSeed()} }

// field returns a field whose value is b.
func (in *Interner) field(name *Name, b []byte) *Field {
	if in == nil || len(b) > internedBytesMax {
		return newField(name, string(b))
	}
	slot := &in.fields[(maphash.Bytes(in.seed, b)+uint64(len(name.wire)))%internedMax]
	if f := slot.Load(); f != nil && f.Name == name && f.Value == string(b) {
		return f
	}
	f := newField(name, string(b))
	slot.Store(f)
	return f
}

// name returns the Name of a name as it was sent.
func (in *Interner) name(b []byte) *Name {
	if n := byWire[string(b)]; n != nil {
		return n
	}
	if in == nil || len(b) > internedBytesMax {
		return newName(string(b))
	}
	slot := &in.names[maphash.Bytes(in.seed, b)%internedMax]
	if n := slot.Load(); n != nil && n.wire == string(b) {
		return n
	}
	n := newName(string(b))
	slot.Store(n)
	return n
}

// MakeKeyField is MakeField for a key of an http.Header.
func (in *Interner) MakeKeyField(key, value string) Field {
	return Field{Name: in.nameOfKey(key), Value: value, badValue: !ValidValue(value)}
}

// nameOfKey returns the Name of a key of an http.Header, which may be in any case. It seldom makes a new
// one for a key in its canonical form.
func (in *Interner) nameOfKey(key string) *Name {
	if n := byKey[key]; n != nil {
		return n
	}
	if in == nil || len(key) > internedBytesMax {
		return NameOf(strings.ToLower(key))
	}
	slot := &in.names[maphash.String(in.seed, key)%internedMax]
	if n := slot.Load(); n != nil && n.key == key {
		return n
	}
	n := NameOf(strings.ToLower(key))
	if n.key == key {
		slot.Store(n)
	}
	return n
}
