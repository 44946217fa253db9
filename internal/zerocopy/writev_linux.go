package zerocopy

import (
	"io"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/sys"
)

const (
	// iovMax is how many slices one system call takes (UIO_MAXIOV, readv(2)).
	iovMax = 1024

	// chunkBytesMax bounds a slice's part in one system call, as package net does:
	// some kernels refuse to transfer 2 GiB and more at once.
	chunkBytesMax = 1 << 30
)

// iovecs is a list of slices as the kernel wants it. It is reused, because the
// kernel needs it only during a system call.
//
// The memory that an entry points to can't move or go away during it: Base is a pointer that the
// garbage collector follows, in an object on the heap, so that its slices' memory has been
// allocated on the heap, too, where nothing moves. Entries are cleared before the list goes back,
// or it would keep the slices' memory alive for as long as it stays in the pool.
type iovecs struct{ list []unix.Iovec }

var iovecsPool = sync.Pool{New: func() any { return new(iovecs) }}

// fill makes the list of the first slices of v that are not empty, as many as fit a batch.
func (vec *iovecs) fill(v [][]byte, batch int) {
	vec.list = vec.list[:0]
	for _, p := range v {
		if len(p) == 0 {
			continue
		}
		iov := unix.Iovec{Base: &p[0]}
		iov.SetLen(min(len(p), chunkBytesMax))
		vec.list = append(vec.list, iov)
		if len(vec.list) == batch || len(p) > chunkBytesMax {
			return
		}
	}
}

// Writev writes the slices of v to fd, a connected stream socket, until all are
// written or something stops it, and never blocks: with [syscall.EAGAIN] the
// kernel's buffer is full, and Writev is to be called again when there is room.
// Any other error is final: an errno of sendmsg(2), or [io.ErrUnexpectedEOF] if the
// kernel takes nothing without saying why. n is how much was written in any case.
//
// Written bytes are taken out of v and its slices as net.Buffers.WriteTo does; the bytes are only
// read and not kept. There is one system call for each 1024 slices, or one for each slice if the
// environment says writev=0. It allocates nothing, once it was called with as many slices before.
//
// Two calls at once on one socket would mix up their bytes.
func Writev(fd int, v *[][]byte) (n int64, err error) {
	vec := iovecsPool.Get().(*iovecs)
	defer iovecsPool.Put(vec)
	batch := iovMax
	if !features.Writev.On() {
		batch = 1
	}
	for {
		vec.fill(*v, batch)
		if len(vec.list) == 0 {
			return n, nil
		}
		wrote, errno := sys.Writev(fd, vec.list)
		clear(vec.list)
		runtime.KeepAlive(v)
		n += int64(wrote)
		consume(v, wrote)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			return n, errno
		case wrote == 0:
			return n, io.ErrUnexpectedEOF
		}
		features.WritevCalls.Add(1)
		features.WritevBytes.Add(uint64(wrote))
	}
}

// consume takes n bytes away from the front of v.
func consume(v *[][]byte, n int) {
	for len(*v) > 0 {
		first := (*v)[0]
		if len(first) > n {
			(*v)[0] = first[n:]
			return
		}
		n -= len(first)
		(*v)[0] = nil // or the array behind v would keep it alive
		*v = (*v)[1:]
	}
}
