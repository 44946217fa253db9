//go:build !percore_net

package reactor

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestSendingWays: no way to write overtakes the bytes that are still to be sent.
func TestSendingWays(t *testing.T) {
	s, _ := serve(t, &handler{})
	long := numbers(12 << 20)
	nc, peer := hijackFull(t, s, long)
	c := nc.(*sendingConn)
	if _, err := c.File(); !errors.Is(err, errSending) {
		t.Errorf("File: got %v, want errSending", err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		defer c.Close()
		written <- writeRaw(raw, "last")
		f, err := c.File()
		if err != nil {
			t.Errorf("File, when all is sent: %v", err)
			return
		}
		defer f.Close()
		if _, err := f.WriteString("!!"); err != nil {
			t.Error(err)
		}
	}()
	got, err := io.ReadAll(peer)
	want := append(bytes.Clone(long), "last!!"...)
	if !bytes.Equal(got, want) || err != nil {
		t.Errorf("got %d bytes, %v, want %d (the same up to %d)", len(got), err, len(want), commonPrefix(got, want))
	}
	if err := testnet.Receive(t, "RawConn.Write", written); err != nil {
		t.Errorf("RawConn.Write: %v", err)
	}
}

// writeRaw writes all of p, which is short.
func writeRaw(raw syscall.RawConn, p string) (err error) {
	failed := raw.Write(func(fd uintptr) bool {
		_, err = syscall.Write(int(fd), []byte(p))
		return err != syscall.EAGAIN
	})
	return errors.Join(failed, err)
}

// wrapper is a connection as httpadapter's hijacked ones: it holds bytes back.
type wrapper struct {
	net.Conn
	held []byte
}

func (w *wrapper) AttachTo(attach func(pc *percore.Conn, unread []byte) error) error {
	return attach(w.Conn.(*percore.Conn), w.held)
}

// TestAttachWrapped: bytes that a wrapper holds back come behind those that were read from it.
func TestAttachWrapped(t *testing.T) {
	got := make(chan string, 1)
	var all []byte
	s, _ := serve(t, &handler{data: func(_ *Conn, p []byte) int { all = append(all, p...); return len(p) }, close: func(*Conn, error) { got <- string(all) }})
	nc, peer := testnet.Pair(t, percore.Listen, testnet.TCP4)
	if _, err := s.Attach(&wrapper{nc, []byte("second ")}, []byte("first "), nil); err != nil {
		t.Fatal(err)
	}
	io.WriteString(peer, "third")
	peer.Close()
	if got := testnet.Receive(t, "Close", got); got != "first second third" {
		t.Errorf("got %q", got)
	}
}
