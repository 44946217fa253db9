package loop

import "syscall"

// Stream is the socket of an FD for callers that vouch for their functions: these neither duplicate the
// descriptor nor change the meaning of its reads and writes, so the FD's knowledge of the socket stays
// true. It is a zerocopy.Stream (internal/zerocopy), which an interface holds without an allocation.
type Stream struct{ fd *FD }

// Stream returns f's socket.
func (f *FD) Stream() Stream { return Stream{f} }

// Control calls fn with the descriptor, which stays open until fn returns. It fails with [ErrClosed].
func (s Stream) Control(fn func(fd uintptr)) error {
	return s.fd.Control(func(fd int) syscall.Errno {
		fn(uintptr(fd))
		return 0
	})
}

// Read calls fn when there may be something to read, again and again until fn reports true. fn
// reports false only after a system call on the descriptor has said EAGAIN. Read fails as [FD.Read]
// does. It holds the read half from its start to its return, waiting included.
func (s Stream) Read(fn func(fd uintptr) (done bool)) error {
	f := s.fd
	if err := f.begin(&f.rd); err != nil {
		return err
	}
	defer f.end(&f.rd) // fn may panic
	return f.waitThenTry(func(uintptr) bool { return s.call(fn) })
}

// call calls Read's fn after ready was cleared, and sets it again unless fn has found
// nothing to read, or says that nothing is left: otherwise that is not known. (A fn that splices leaves
// the bytes at an urgent mark to reads: see Marked. So it does not come back for them over and over.)
func (s Stream) call(fn func(fd uintptr) bool) (done bool) {
	f := s.fd
	done, f.drained = true, false // if fn panics
	defer func() {
		switch {
		case !done:
			f.doubtEAGAIN()
		case !(f.drained && f.rd.shortReadReliable()):
			f.rd.setReady(f)
		}
	}()
	done = fn(uintptr(f.sysfd))
	return done
}

// Write is Read for writing. fn is called at once, since there is room most of the time.
// Before it reports false the kernel must have refused to take more with EAGAIN, or
// there will be no edge to wait for.
func (s Stream) Write(fn func(fd uintptr) (done bool)) error {
	f := s.fd
	if err := f.begin(&f.wr); err != nil {
		return err
	}
	defer f.end(&f.wr) // fn may panic
	f.answer()
	return f.tryThenWait(&f.wr, func(fd uintptr) bool {
		f.wr.state.Or(longCall) // a writev, say
		defer f.wr.state.And(^longCall)
		return fn(fd)
	})
}

// Drained is for the function of a Read.
func (s Stream) Drained() { s.fd.drained = true }

// Marked is for the function of a Read.
func (s Stream) Marked() bool {
	return s.fd.kind == TCP && s.fd.rd.state.Load()&shortReadUnreliable != 0
}

// Nonblocking is false if a user has had the descriptor, and may have changed its mode.
func (s Stream) Nonblocking() bool { return !s.fd.exposed.Load() }

// Closed reports whether Close was called, which waits for functions of Read and Write.
func (s Stream) Closed() bool { return s.fd.life.closed() }
