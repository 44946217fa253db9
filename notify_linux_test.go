//go:build !percore_net

package percore

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/testnet"
)

// notified is a ReadableHandler that passes its error on.
type notified chan error

func (n notified) OnReadable(err error) { n <- err }

func TestNotifyReadable(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.Pair(t, Listen, testnet.TCP4)
	c := server.(*Conn)
	local, remote := c.LocalAddr().String(), c.RemoteAddr().String()
	n := make(notified, 1)
	c.SetReadDeadline(time.Unix(1, 0))
	wantErr(t, "NotifyReadable past the deadline", c.NotifyReadable(n), "set", os.ErrDeadlineExceeded)
	c.SetReadDeadline(time.Time{})
	if err := c.NotifyReadable(n); err != nil {
		t.Fatalf("NotifyReadable: %v", err)
	}
	wantErr(t, "NotifyReadable while armed", c.NotifyReadable(n), "set", engine.ErrArmed)
	wantErr(t, "OnReadable while armed", c.OnReadable(func(error) {}), "set", engine.ErrArmed)
	if got := c.LocalAddr().String(); got != local || got != client.RemoteAddr().String() {
		t.Errorf("while armed: got local address %s, want %s", got, local)
	}
	if got := c.RemoteAddr().String(); got != remote {
		t.Errorf("while armed: got remote address %s, want %s", got, remote)
	}
	client.Write([]byte("x"))
	if err := testnet.Receive(t, "the callback", n); err != nil {
		t.Errorf("the callback: got %v, want nil", err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("Read: %v", err)
	}
	if err := c.NotifyReadable(n); err != nil {
		t.Fatalf("NotifyReadable again: %v", err)
	}
	c.Close()
	if err := testnet.Receive(t, "the callback", n); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the callback after Close: got %v, want net.ErrClosed", err)
	}
	wantErr(t, "NotifyReadable after Close", c.NotifyReadable(n), "set", net.ErrClosed)
	if c.CancelOnReadable() {
		t.Error("CancelOnReadable after Close: got true, want false")
	}
	if err := (*Conn)(nil).OnReadable(func(error) {}); err != syscall.EINVAL {
		t.Errorf("OnReadable of nil: got %v, want EINVAL", err)
	}
	if got := c.LocalAddr().String(); got != local {
		t.Errorf("after Close: got local address %s, want %s", got, local)
	}
}

// TestAddrsAgainstClose reads the addresses, which NotifyReadable forgets again and again, while the
// connection is being closed. It does so inside a function that Close waits for, and beside it.
func TestAddrsAgainstClose(t *testing.T) {
	testnet.NoLeaks(t)
	ln := listen(t, ListenConfig{Group: newGroup(t, 1)}, "tcp4", "127.0.0.1:0")
	for range 200 {
		client := testnet.Dial(t, ln)
		c, err := ln.AcceptConn()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		want := client.LocalAddr().String()
		wantAddr := func() {
			if got := c.RemoteAddr(); got == nil || got.String() != want {
				t.Errorf("RemoteAddr: got %v, want %v", got, want)
			}
			if got := c.LocalAddr(); got == nil || got.String() != ln.Addr().String() {
				t.Errorf("LocalAddr: got %v, want %v", got, ln.Addr())
			}
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			for n := make(notified, 1); c.NotifyReadable(n) == nil && c.CancelOnReadable(); {
				runtime.Gosched()
			}
		})
		calls.Go(func() {
			for range 20 {
				wantAddr()
			}
		})
		calls.Go(func() { _ = raw.Control(func(uintptr) { runtime.Gosched(); wantAddr() }) })
		calls.Go(func() { _ = c.Close() })
		testnet.Within(t, "the calls", calls.Wait)
		wantAddr()
		client.Close()
		if t.Failed() {
			return
		}
	}
}

// TestNoWait: if a read of a buffering reader, or of crypto/tls, reaches the connection, it returns
// that error and leaves the reader unchanged.
func TestNoWait(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.Pair(t, Listen, testnet.TCP4)
	c := server.(*Conn)
	plain := bufio.NewReader(c)
	testNoWait(t, c, plain, client)

	config, clientConfig := testnet.TLS(t)
	tlsServer, tlsClient := tls.Server(c, config), tls.Client(client, clientConfig)
	shaken := make(chan error, 1)
	go func() { shaken <- tlsClient.Handshake() }()
	if err := tlsServer.Handshake(); err != nil {
		t.Fatalf("the handshake: %v", err)
	}
	if err := testnet.Receive(t, "the client's handshake", shaken); err != nil {
		t.Fatalf("the client's handshake: %v", err)
	}
	secret := bufio.NewReader(tlsServer)
	testNoWait(t, c, secret, tlsClient)

	c.Close()
	if err := c.SetNoWait(true); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: got %v, want net.ErrClosed", err)
	}
}

// testNoWait plays messages of several bytes to r, which reads from c, and reads them byte by byte.
func testNoWait(t *testing.T, c *Conn, r *bufio.Reader, client net.Conn) {
	t.Helper()
	noWait := func(on bool) {
		if err := c.SetNoWait(on); err != nil {
			t.Fatalf("SetNoWait(%t): %v", on, err)
		}
	}
	for range 3 {
		noWait(true)
		if _, err := r.Peek(1); err != ErrWouldWait {
			t.Errorf("with nothing to read: got %v, want %v", err, ErrWouldWait)
		}
		n := make(notified, 1)
		arm := func() {
			if err := c.NotifyReadable(n); err != nil {
				t.Fatalf("NotifyReadable: %v", err)
			}
		}
		arm()
		client.Write([]byte("two"))
		testnet.Receive(t, "the callback", n)
		for {
			if _, err := r.Peek(1); err != ErrWouldWait {
				break
			}
			arm() // that callback came for nothing
			testnet.Receive(t, "another callback", n)
		}
		for _, want := range []byte("two") {
			if got, err := r.ReadByte(); got != want || err != nil {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
		if _, err := r.Peek(1); err != ErrWouldWait {
			t.Errorf("after the last byte: got %v, want %v", err, ErrWouldWait)
		}
		noWait(false)
		read := make(chan error, 1)
		testnet.GoBlocked(t, "a read", func() {
			_, err := r.ReadByte()
			read <- err
		})
		noWait(true)
		if err := testnet.Receive(t, "the read", read); err != ErrWouldWait {
			t.Errorf("a read that waits: got %v, want %v", err, ErrWouldWait)
		}
		noWait(false)
		client.Write([]byte("x"))
		if got, err := r.ReadByte(); got != 'x' || err != nil {
			t.Errorf("the next read: got %q, %v, want 'x'", got, err)
		}
	}
}

func TestTryRead(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.Pair(t, Listen, testnet.TCP4)
	c := server.(*Conn)
	p := make([]byte, 4)
	if n, err := c.TryRead(p); n != 0 || err != nil {
		t.Errorf("with nothing to read: got %d, %v, want 0, nil", n, err)
	}
	n := make(notified, 1)
	for _, want := range []string{"some", "more"} {
		if err := c.NotifyReadable(n); err != nil {
			t.Fatalf("NotifyReadable: %v", err)
		}
		client.Write([]byte(want))
		if err := testnet.Receive(t, "the callback", n); err != nil {
			t.Errorf("the callback: got %v, want nil", err)
		}
		if got, err := c.TryRead(p[:0]); got != 0 || err != nil {
			t.Errorf("into an empty slice: got %d, %v, want 0, nil", got, err)
		}
		if got, err := c.TryRead(p); string(p[:got]) != want || err != nil {
			t.Errorf("got %q, %v, want %q", p[:got], err, want)
		}
		if got, err := c.TryRead(p); got != 0 || err != nil {
			t.Errorf("after the last byte: got %d, %v, want 0, nil", got, err)
		}
	}
	if err := c.NotifyReadable(n); err != nil {
		t.Fatalf("NotifyReadable: %v", err)
	}
	client.Close()
	testnet.Receive(t, "the callback", n)
	if got, err := c.TryRead(p); got != 0 || err != io.EOF {
		t.Errorf("at the end: got %d, %v, want 0, io.EOF", got, err)
	}
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if _, err := c.TryRead(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: got %v, want os.ErrDeadlineExceeded", err)
	}
	c.Close()
	if _, err := c.TryRead(p); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: got %v, want net.ErrClosed", err)
	}
}
