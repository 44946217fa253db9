package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// A write on one end of a connection happens before the read of its bytes on the other end, even if
// one of the ends is package net's. TestHappensBefore accesses a variable before the write and
// after the read. It checks nothing itself: the race detector fails it.
//
// Package net has no such edge where it calls writev(2) or splice(2): only percore has it for the
// ways marked with lacking.

// percoreConn lists the methods that percore's connections have and net's don't.
type percoreConn interface {
	WriteBuffers(v *net.Buffers) (int64, error)
	ReadReady(lend func() []byte, takeBack func()) (int, error)
}

// raceWrites are the ways to send some bytes. prepare runs before the variable is accessed, and the
// function that it returns sends.
var raceWrites = []struct {
	name    string
	lacking bool
	prepare func(t *testing.T, c net.Conn) (send func() error)
}{
	{"Write", false, func(t *testing.T, c net.Conn) func() error {
		return func() error { _, err := c.Write([]byte("x")); return err }
	}},
	{"net.Buffers", true, func(t *testing.T, c net.Conn) func() error {
		return func() error { _, err := (&net.Buffers{{'x'}, {'y'}}).WriteTo(c); return err }
	}},
	{"WriteBuffers", true, func(t *testing.T, c net.Conn) func() error {
		return func() error { _, err := c.(percoreConn).WriteBuffers(&net.Buffers{{'x'}, {'y'}}); return err }
	}},
	{"io.Copy from a file", false, func(t *testing.T, c net.Conn) func() error {
		f := testnet.TempFile(t, []byte("x"))
		return func() error { _, err := io.Copy(c, f); return err }
	}},
	{"io.Copy from a connection", false, func(t *testing.T, c net.Conn) func() error {
		from, far := testnet.Pair(t, percore.Listen, testnet.TCP4)
		far.Write([]byte("x"))
		far.Close()
		return func() error { _, err := io.Copy(c, from); return err }
	}},
}

// raceReads are the ways to receive all bytes.
var raceReads = []struct {
	name    string
	lacking bool
	receive func(t *testing.T, c net.Conn) error
}{
	{"Read", false, func(t *testing.T, c net.Conn) error {
		_, err := c.Read(make([]byte, 8))
		return err
	}},
	{"Read of 100 KB", false, func(t *testing.T, c net.Conn) error {
		_, err := c.Read(make([]byte, 100_000))
		return err
	}},
	{"the end", false, func(t *testing.T, c net.Conn) error {
		_, err := io.ReadAll(c)
		return err
	}},
	{"ReadReady", true, func(t *testing.T, c net.Conn) error {
		_, err := c.(percoreConn).ReadReady(func() []byte { return make([]byte, 8) }, func() {})
		return err
	}},
	{"io.Copy to memory", false, func(t *testing.T, c net.Conn) error {
		_, err := io.Copy(new(bytes.Buffer), c)
		return err
	}},
	{"io.Copy to a file", true, func(t *testing.T, c net.Conn) error {
		_, err := io.Copy(testnet.TempFile(t, nil), c)
		return err
	}},
	{"io.Copy to a pipe", true, func(t *testing.T, c net.Conn) error {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		defer r.Close()
		defer w.Close()
		_, err = io.Copy(w, c)
		return err
	}},
	{"io.Copy to a connection", false, func(t *testing.T, c net.Conn) error {
		to, _ := testnet.Pair(t, percore.Listen, testnet.TCP4)
		_, err := io.Copy(to, c)
		return err
	}},
}

func TestHappensBefore(t *testing.T) {
	for _, e := range append(engines, percoreDialing) {
		skip := func(lacking bool) bool { return lacking && (e.name == netEngine.name || percoreIsNet()) }
		for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
			t.Run(fmt.Sprintf("%s/dials=%t/%s", e.name, e.dial != nil, kind), func(t *testing.T) {
				pair := func(t *testing.T) (tested, peer net.Conn) { return e.connect(t, testnet.Listen(t, e.listen, kind)) }
				for _, way := range raceWrites {
					if skip(way.lacking) {
						continue
					}
					t.Run(way.name+" to net", func(t *testing.T) {
						ours, nets := pair(t)
						happensBefore(t, ours, way.prepare(t, ours), func() error { return raceReads[0].receive(t, nets) })
					})
				}
				for _, way := range raceReads {
					if skip(way.lacking) {
						continue
					}
					t.Run(way.name+" from net", func(t *testing.T) {
						ours, nets := pair(t)
						happensBefore(t, nets, raceWrites[0].prepare(t, nets), func() error { return way.receive(t, ours) })
					})
				}
			})
		}
	}
}

// happensBefore accesses a variable, sends and closes the connection. On another goroutine it
// receives and accesses the variable.
func happensBefore(t *testing.T, from net.Conn, send, receive func() error) {
	touched := 0
	sent := make(chan error, 1)
	go func() {
		touched++
		err := send()
		from.Close()
		sent <- err
	}()
	if err := receive(); err != nil {
		t.Errorf("receiving: %v", err)
	}
	touched++
	if err := testnet.Receive(t, "sending", sent); err != nil {
		t.Errorf("sending: %v", err)
	}
}
