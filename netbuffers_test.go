package percore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// listenNetBuffers is Listen with NetBuffers.
func listenNetBuffers(network, address string) (net.Listener, error) {
	lc := ListenConfig{NetBuffers: true}
	return lc.Listen(context.Background(), network, address)
}

// netBuffersPair returns both ends of a connection: the one that is tested, accepted or
// dialed with NetBuffers, and package net's.
func netBuffersPair(t testing.TB, dialed bool) (tested, peer net.Conn) {
	t.Helper()
	if !dialed {
		return testnet.Pair(t, listenNetBuffers, testnet.TCP4)
	}
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	d := Dialer{NetBuffers: true}
	tested, err := d.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tested.Close() })
	return tested, mustAccept(t, ln)
}

// onNetBuffers runs test with an accepted and with a dialed end.
func onNetBuffers(t *testing.T, test func(t *testing.T, tested, peer net.Conn)) {
	for _, dialed := range []bool{false, true} {
		t.Run(fmt.Sprintf("dialed=%t", dialed), func(t *testing.T) {
			testnet.NoLeaks(t)
			tested, peer := netBuffersPair(t, dialed)
			test(t, tested, peer)
		})
	}
}

// numbered returns slices of size bytes. Each contains a mark and its number.
func numbered(mark byte, slices, size int) net.Buffers {
	v := make(net.Buffers, slices)
	for i := range v {
		v[i] = bytes.Repeat([]byte{mark}, size)
		v[i][0], v[i][1] = byte(i>>8), byte(i)
	}
	return v
}

// Package net says "writev" where its private interface was found, and "write" where each
// slice is written by itself.
func TestNetBuffersIsFound(t *testing.T) {
	onNetBuffers(t, func(t *testing.T, tested, peer net.Conn) {
		v := numbered('x', 1500, 7) // more than one writev takes
		want := bytes.Join(v, nil)
		if n, err := v.WriteTo(tested); n != int64(len(want)) || err != nil || len(v) != 0 {
			t.Fatalf("WriteTo: got %d, %v, %d slices left, want %d, nil, none", n, err, len(v), len(want))
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the peer got other bytes than were written (%v)", err)
		}
		tested.Close()
		_, err := (&net.Buffers{[]byte("x")}).WriteTo(tested)
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "writev" || !errors.Is(err, net.ErrClosed) {
			t.Errorf("WriteTo a closed connection: got %v, want a writev that fails with net.ErrClosed", err)
		}
	})
}

// The bytes of one WriteTo are not interleaved with those of another WriteTo or a Write.
func TestNetBuffersConcurrentWriters(t *testing.T) {
	const writers, rounds, slices, size = 4, 20, 40, 3000
	onNetBuffers(t, func(t *testing.T, tested, peer net.Conn) {
		var writing sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				for range rounds {
					v := numbered(byte(w), slices, size)
					var err error
					if w%2 == 0 {
						_, err = v.WriteTo(tested)
					} else {
						_, err = tested.Write(bytes.Join(v, nil))
					}
					if err != nil {
						t.Errorf("writing: %v", err)
						return
					}
				}
			})
		}
		block := make([]byte, slices*size)
		for range writers * rounds {
			if _, err := io.ReadFull(peer, block); err != nil {
				t.Fatal(err)
			}
			if want := bytes.Join(numbered(block[2], slices, size), nil); !bytes.Equal(block, want) {
				t.Fatal("the bytes of two writers are interleaved")
			}
		}
		writing.Wait()
	})
}

// TestForgottenConn: a connection that is not closed is closed by the garbage collector, one with
// NetBuffers with both halves.
func TestForgottenConn(t *testing.T) {
	for _, listen := range []testnet.ListenFunc{Listen, listenNetBuffers} {
		testnet.NoLeaks(t)
		ln := testnet.Listen(t, listen, testnet.TCP4)
		peer := testnet.Dial(t, ln)
		if _, err := ln.Accept(); err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := peer.Read(make([]byte, 1))
			read <- err
		}()
		testnet.Eventually(t, "the peer's end", func() bool {
			runtime.GC()
			return len(read) > 0
		})
		if err := <-read; err != io.EOF {
			t.Errorf("the peer's Read: got %v, want io.EOF", err)
		}
	}
}

// Unix sockets, AcceptConn and DialTCP are not affected.
func TestNetBuffersNotThere(t *testing.T) {
	testnet.NoLeaks(t)
	if c, _ := testnet.Pair(t, listenNetBuffers, testnet.Unix); c != nil {
		if _, ok := c.(*Conn); !ok {
			t.Errorf("on a unix socket: got a %T, want a *Conn", c)
		}
	}
	ln := testnet.Listen(t, listenNetBuffers, testnet.TCP4)
	testnet.Dial(t, ln)
	c, err := ln.(*Listener).AcceptConn()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// Buffers.WriteTo takes the way that there is.
func TestBuffers(t *testing.T) {
	testnet.NoLeaks(t)
	slices := func() *Buffers { return &Buffers{[]byte("some "), nil, []byte("text")} }
	var memory bytes.Buffer
	v := slices()
	if n, err := v.WriteTo(&memory); n != 9 || err != nil || len(*v) != 0 || memory.String() != "some text" {
		t.Errorf("to memory: got %d, %v, %d slices left, %q", n, err, len(*v), memory.String())
	}
	if got, err := io.ReadAll(slices()); string(got) != "some text" || err != nil {
		t.Errorf("Read: got %q, %v", got, err)
	}
	for _, listen := range []testnet.ListenFunc{net.Listen, Listen, listenNetBuffers} {
		c, peer := testnet.Pair(t, listen, testnet.TCP4)
		v := slices()
		if n, err := v.WriteTo(c); n != 9 || err != nil || len(*v) != 0 {
			t.Errorf("to a %T: got %d, %v, %d slices left", c, n, err, len(*v))
		}
		c.Close()
		var op *net.OpError
		if _, err := slices().WriteTo(c); !errors.As(err, &op) || op.Op != "writev" {
			t.Errorf("to a closed %T: got %v, want writev's error", c, err)
		}
		if got, err := io.ReadAll(peer); string(got) != "some text" || err != nil {
			t.Errorf("the peer of a %T read %q, %v", c, got, err)
		}
	}
}
