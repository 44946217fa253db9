package zerocopy

import (
	"errors"
	"hash/crc32"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

func TestSendFile(t *testing.T) {
	const fileBytes = 300_000
	data := content(fileBytes)
	for _, c := range []struct {
		name          string
		offset, limit int64
		want          int64
	}{
		{"whole", 0, -1, fileBytes},
		{"from an offset", 100_000, -1, 200_000},
		{"at the end", fileBytes, -1, 0},
		{"beyond the end", fileBytes + 10, -1, 0},
		{"nothing", 7, 0, 0},
		{"under the limit", 0, fileBytes + 1, fileBytes},
		{"at the limit", 0, fileBytes, fileBytes},
		{"over the limit", 0, fileBytes - 1, fileBytes - 1},
		{"one byte", 4095, 1, 1},
	} {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(c.name+"/"+network, func(t *testing.T) {
				l, f := links[network](t), testnet.TempFile(t, data)
				seek(t, f, c.offset)
				arriving, before := readAll(l.out), countMoved()
				n, handled, err := SendFile(raw(t, l.in), raw(t, f), c.limit)
				wantTransfer(t, n, handled, err, c.want)
				if got, want := offset(t, f), c.offset+c.want; got != want {
					t.Errorf("offset: got %d, want %d", got, want)
				}
				if got := since(before); got.sendfile != uint64(c.want) || got.copied != 0 {
					t.Errorf("counted: got %+v, want %d bytes sent by sendfile, none copied", got, c.want)
				}
				from := min(c.offset, fileBytes)
				wantArrival(t, l.in, arriving, data[from:from+c.want])
			})
		}
	}
}

// TestSendFileHuge sends more than fits into 31 bits, and into a call.
func TestSendFileHuge(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("too heavy for -short and -race")
	}
	const size = 3 << 30
	f := testnet.TempFile(t, nil)
	if err := f.Truncate(size); err != nil {
		t.Skipf("no room for a sparse file: %v", err)
	}
	sum := crc32.New(castagnoli)
	var zeros [1 << 20]byte
	for at := int64(0); at < size; at += int64(len(zeros)) {
		block := zeros[:]
		if at%(256<<20) == 0 { // a mark here and there, 2 GiB included
			block = content(len(zeros))
			block[0] = byte(at >> 28)
			if _, err := f.WriteAt(block, at); err != nil {
				t.Fatalf("WriteAt: %v", err)
			}
		}
		sum.Write(block)
	}
	l := links["tcp"](t)
	arriving := readAll(l.out)
	n, handled, err := SendFile(raw(t, l.in), raw(t, f), size)
	wantTransfer(t, n, handled, err, size)
	l.in.Close()
	if got, want := <-arriving, (arrival{size, sum.Sum32(), nil}); got != want {
		t.Errorf("arrived: got %v, want %v", got, want)
	}
}

// TestSendFileOfChangingSize has the file cut, and grow, while it is being sent.
func TestSendFileOfChangingSize(t *testing.T) {
	data := content(32 << 20)
	for _, c := range []struct {
		name   string
		resize func(f *os.File) error
		limit  int64
		fits   func(n int64) bool
	}{
		{"shrinks", func(f *os.File) error { return f.Truncate(1) }, int64(len(data)), func(n int64) bool { return 0 < n && n < int64(len(data)) }},
		{"grows", func(f *os.File) error { _, err := f.WriteAt([]byte("more"), int64(len(data))); return err }, -1, func(n int64) bool { return n == int64(len(data))+4 }},
		{"grows beyond the limit", func(f *os.File) error { _, err := f.WriteAt([]byte("more"), int64(len(data))); return err }, int64(len(data)) + 2, func(n int64) bool { return n == int64(len(data))+2 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, f := links["tcp"](t), testnet.TempFile(t, data)
			done := begin(t, SendFile, l.in, f, c.limit)
			if err := c.resize(f); err != nil {
				t.Fatalf("resizing: %v", err)
			}
			arriving := readAll(l.out)
			got := testnet.Receive(t, "SendFile", done)
			if !got.handled || got.err != nil || !c.fits(got.n) {
				t.Errorf("got %+v, want it handled, with the file's length", got)
			}
			l.in.Close()
			arrived := testnet.Receive(t, "the reader", arriving)
			want := arrivalOf(append(data[:len(data):len(data)], "more"...)[:got.n])
			if c.name == "shrinks" {
				want.sum = arrived.sum // bytes that are cut off turn to zeros even in the socket's buffer
			}
			if arrived != want {
				t.Errorf("arrived: got %v, want %v", arrived, want)
			}
		})
	}
}

func TestSendFileDeclines(t *testing.T) {
	file := func(t *testing.T) any { return testnet.TempFile(t, content(10)) }
	wantDeclines(t, SendFile, features.Sendfile, []declined{
		{"from a pipe", to("tcp"), full("pipe")},
		{"from a socket", to("tcp"), full("tcp")},
		{"from a directory", to("tcp"), func(t *testing.T) any { return open(t, testnet.ShortTempDir(t), os.O_RDONLY) }},
		{"from a closed file", to("tcp"), func(t *testing.T) any {
			f := testnet.TempFile(t, content(10))
			f.Close()
			return f
		}},
		{"to a closed connection", func(t *testing.T) any {
			c := links["tcp"](t).in
			c.Close()
			return c
		}, file},
		{"past the deadline", func(t *testing.T) any {
			c := links["tcp"](t).in
			c.(net.Conn).SetWriteDeadline(longAgo)
			return c
		}, file},
		{"to a blocking socket", func(t *testing.T) any { return blocking(t, links["tcp"](t).in) }, file},
		{"switched off", to("tcp"), file},
	})
}

// blocking returns a file that shares c's socket and has made it blocking.
func blocking(t testing.TB, c any) *os.File {
	t.Helper()
	f, ok := c.(*os.File)
	if !ok {
		var err error
		if f, err = c.(interface{ File() (*os.File, error) }).File(); err != nil {
			t.Fatalf("File: %v", err)
		}
		t.Cleanup(func() { f.Close() })
	}
	f.Fd()
	return f
}

func TestSendFileFails(t *testing.T) {
	data := content(32 << 20)
	for _, c := range stops {
		t.Run(c.name, func(t *testing.T) {
			l, f := links["tcp"](t), testnet.TempFile(t, data)
			done := begin(t, SendFile, l.in, f, -1)
			c.stop(l)
			got := testnet.Receive(t, "SendFile", done)
			wantStopped(t, got, c.want)
			if at := offset(t, f); at != got.n {
				t.Errorf("offset: got %d, want %d, what was sent", at, got.n)
			}
			if c.want == os.ErrDeadlineExceeded {
				wantArrival(t, l.in, readAll(l.out), data[:got.n])
			}
		})
	}
}

// A sink is a destination that is never full, and closed after some calls.
type sink struct {
	*os.File
	open int // for as many calls of Closed
}

func (s *sink) Control(func(fd uintptr)) error { return errors.ErrUnsupported }

func (s *sink) Read(func(fd uintptr) (done bool)) error { return errors.ErrUnsupported }

func (s *sink) Write(f func(fd uintptr) (done bool)) error {
	f(s.Fd())
	return nil
}

func (s *sink) Drained() {}

func (s *sink) Marked() bool { return false }

func (s *sink) Nonblocking() bool { return true }

func (s *sink) Closed() bool {
	s.open--
	return s.open < 0
}

// TestSendFileToFastPeer closes a destination that sendfile never has to wait for.
func TestSendFileToFastPeer(t *testing.T) {
	f := testnet.TempFile(t, content(5*sendfileBytesMax))
	n, handled, err := SendFile(&sink{open(t, os.DevNull, os.O_WRONLY), 2}, raw(t, f), -1)
	why, ok := err.(*Error)
	if !handled || !ok || why.End != Destination || why.Err != net.ErrClosed {
		t.Errorf("got handled %t, %v, want %v", handled, err, net.ErrClosed)
	}
	// Three calls, of which a signal may cut one short.
	if at := offset(t, f); n != at || n == 0 || n > 3*sendfileBytesMax {
		t.Errorf("got %d bytes and the offset %d, want the same, and %d at most", n, at, 3*sendfileBytesMax)
	}
}

// TestSendFileHoldsBothEnds has another write wait until the file is sent.
func TestSendFileHoldsBothEnds(t *testing.T) {
	data := content(16 << 20)
	l, f := links["tcp"](t), testnet.TempFile(t, data)
	done := begin(t, SendFile, l.in, f, -1)
	wrote := make(chan error, 1)
	testnet.GoBlocked(t, "Write", func() {
		_, err := l.in.Write([]byte("after"))
		wrote <- err
	})
	arriving := readAll(l.out)
	got := testnet.Receive(t, "SendFile", done)
	wantTransfer(t, got.n, got.handled, got.err, int64(len(data)))
	if err := testnet.Receive(t, "Write", wrote); err != nil {
		t.Errorf("Write: %v", err)
	}
	wantArrival(t, l.in, arriving, append(data, "after"...))
}

// keeping is a raw connection that keeps the function that it was given, though it must not.
type keeping struct {
	syscall.RawConn
	kept func(fd uintptr) (done bool)
}

func (k *keeping) Read(f func(fd uintptr) (done bool)) error {
	k.kept = f
	return k.RawConn.Read(f)
}

// TestSendFileKeptFunction: a raw connection that calls a function later does no harm to a transfer
// between others.
func TestSendFileKeptFunction(t *testing.T) {
	data := content(5000)
	first, second := links["tcp"](t), links["tcp"](t)
	file, secret := testnet.TempFile(t, data), testnet.TempFile(t, []byte("of another connection"))
	arrivingFirst, arriving := readAll(first.out), readAll(second.out)
	src := &keeping{RawConn: raw(t, secret)}
	if _, handled, err := SendFile(raw(t, first.in), src, -1); !handled || err != nil {
		t.Fatalf("got handled %t, %v", handled, err)
	}
	between := &calling{RawConn: raw(t, file), before: func() {
		seek(t, secret, 0)
		_ = raw(t, secret).Control(func(fd uintptr) { src.kept(fd) })
	}}
	n, handled, err := SendFile(raw(t, second.in), between, -1)
	wantTransfer(t, n, handled, err, int64(len(data)))
	wantArrival(t, second.in, arriving, data)
	_ = first.in.Close()
	<-arrivingFirst
}

// calling is a raw connection that calls before, when it is read.
type calling struct {
	syscall.RawConn
	before func()
}

func (c *calling) Read(f func(fd uintptr) (done bool)) error {
	c.before()
	return c.RawConn.Read(f)
}
