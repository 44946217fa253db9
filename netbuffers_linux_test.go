//go:build !percore_net

package percore

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// The callback of a connection that nothing else holds is called, and ReadReady reads.
func TestNetBuffersOnReadable(t *testing.T) {
	onNetBuffers(t, func(t *testing.T, tested, peer net.Conn) {
		called := make(chan error, 1)
		c := tested.(interface {
			OnReadable(func(error)) error
			ReadReady(lend func() []byte, takeBack func()) (int, error)
		})
		if err := c.OnReadable(func(err error) { called <- err }); err != nil {
			t.Fatal(err)
		}
		peer.Write([]byte("x"))
		if err := testnet.Receive(t, "the callback", called); err != nil {
			t.Errorf("the callback got %v", err)
		}
		p := make([]byte, 4)
		if n, err := c.ReadReady(func() []byte { return p }, func() {}); string(p[:n]) != "x" || err != nil {
			t.Errorf("ReadReady: got %q, %v", p[:n], err)
		}
	})
}

// Bytes between two such connections stay in the kernel.
func TestNetBuffersSplices(t *testing.T) {
	testnet.NoLeaks(t)
	const size = 4 << 20
	from, feeder := netBuffersPair(t, false)
	to, drain := netBuffersPair(t, true)
	before := ReadStats().ZeroCopy
	go func() {
		feeder.Write(make([]byte, size))
		feeder.Close()
	}()
	read := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, struct{ io.Reader }{drain})
		read <- n
	}()
	if n, err := io.Copy(to, from); n != size || err != nil {
		t.Errorf("io.Copy: got %d, %v, want %d", n, err, size)
	}
	to.Close()
	if n := testnet.Receive(t, "reading", read); n != size {
		t.Errorf("the other end got %d bytes, want %d", n, size)
	}
	if n := ReadStats().ZeroCopy.SpliceBytes - before.SpliceBytes; n == 0 {
		t.Error("nothing was spliced")
	}
}

// A raw connection's Write waits and is serialized with the writes, its Read with the
// reads; the descriptors are of one socket, and so is that of File.
func TestNetBuffersSyscallConn(t *testing.T) {
	onNetBuffers(t, func(t *testing.T, tested, peer net.Conn) {
		raw, err := tested.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Write(func(fd uintptr) bool {
			_, err := syscall.Write(int(fd), []byte("raw"))
			return err != syscall.EAGAIN
		}); err != nil {
			t.Errorf("Write: %v", err)
		}
		p := make([]byte, 3)
		if _, err := io.ReadFull(peer, p); string(p) != "raw" || err != nil {
			t.Errorf("the peer read %q, %v", p, err)
		}
		go peer.Write([]byte("war"))
		var n int
		var failed error
		err = raw.Read(func(fd uintptr) bool {
			n, failed = syscall.Read(int(fd), p)
			return failed != syscall.EAGAIN
		})
		if n == 0 || err != nil || failed != nil {
			t.Errorf("Read: got %d, %v, %v", n, err, failed)
		}
		f, err := tested.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write([]byte("raw")); err != nil {
			t.Errorf("the file: %v", err)
		}
		if _, err := io.ReadFull(peer, p); string(p) != "raw" || err != nil {
			t.Errorf("the peer read %q, %v, from the file", p, err)
		}
		var inodes [2]uint64
		for i, c := range []syscall.RawConn{raw, raw.(netRawConn).write} {
			if err := c.Control(func(fd uintptr) {
				var st syscall.Stat_t
				if err := syscall.Fstat(int(fd), &st); err != nil {
					t.Errorf("fstat: %v", err)
				}
				inodes[i] = st.Ino
			}); err != nil {
				t.Errorf("Control: %v", err)
			}
		}
		if inodes[0] != inodes[1] {
			t.Errorf("the halves have the inodes %v, want one socket", inodes)
		}
	})
}
