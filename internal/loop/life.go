package loop

import "sync/atomic"

// life counts the calls that use a descriptor, and says whether it was closed:
//
//	word          meaning                                leaves by
//	refs, open    in use: refs calls other than reads    incref, drop: another count;
//	              and writes are under way               close: refs+1, closed
//	refs, closed  new calls fail; those under way are    drop: the last one leads to 0, closed
//	              being woken and leave
//	0, closed     no call uses the descriptor, and none  (final)
//	              will: it is given back
//
// A read or a write holds its half instead of a reference, see FD.begin.
type life struct{ word atomic.Uint32 }

const (
	lifeClosed uint32 = 1 << 31
	lifeRefs          = lifeClosed - 1
)

// closed reports whether close was called.
func (l *life) closed() bool { return l.word.Load()&lifeClosed != 0 }

// incref takes a reference, so that the descriptor stays open. It fails with [ErrClosed].
func (l *life) incref() error {
	for {
		old := l.word.Load()
		if old&lifeClosed != 0 {
			return ErrClosed
		}
		if old&lifeRefs == lifeRefs {
			panic("loop: too many concurrent calls on one descriptor")
		}
		if l.word.CompareAndSwap(old, old+1) {
			checkLife(old, old+1)
			return nil
		}
	}
}

// close makes incref fail from now on and takes a reference, for its caller. It reports
// false, and does nothing, if it was called before.
func (l *life) close() bool {
	for {
		old := l.word.Load()
		if old&lifeClosed != 0 {
			return false
		}
		if l.word.CompareAndSwap(old, (old+1)|lifeClosed) {
			checkLife(old, (old+1)|lifeClosed)
			return true
		}
	}
}

// drop gives a reference up and reports whether it was the last one of a closed
// descriptor: its caller gives the descriptor back.
func (l *life) drop() (last bool) {
	left := l.word.Add(^uint32(0))
	checkLife(left+1, left)
	return left == lifeClosed
}
