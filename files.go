package percore

import (
	"fmt"
	"net"
	"os"
)

// checkFile fails unless the socket of files[index], at addr, can be one of a
// listener with the sockets of the files before it, of which the first is at first.
func checkFile(files []*os.File, index int, addr, first net.Addr) error {
	if addr.Network() != first.Network() || addr.String() != first.String() {
		return fileOpError(addr, fmt.Errorf("not on %s %s, as the first", first.Network(), first))
	}
	for i := range index {
		if sameFile(files[i], files[index]) {
			return fileOpError(addr, fmt.Errorf("the same socket as file %d", i+1))
		}
	}
	return nil
}

func sameFile(f, g *os.File) bool {
	a, errA := f.Stat()
	b, errB := g.Stat()
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// fileOpError is an error as net.FileListener's.
func fileOpError(addr net.Addr, err error) error {
	return &net.OpError{Op: "file", Net: "file+net", Addr: addr, Err: err}
}

// fileError returns err, which is about files[index], with the name of the file,
// unless there is only one.
func fileError(files []*os.File, index int, err error) error {
	op, ok := err.(*net.OpError)
	if !ok || len(files) == 1 {
		return err
	}
	name := "nil"
	if f := files[index]; f != nil {
		name = f.Name()
	}
	named := *op
	named.Err = fmt.Errorf("file %d of %d (%s): %w", index+1, len(files), name, op.Err)
	return &named
}
