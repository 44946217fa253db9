package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// A place is where a copy can come from or go to: one of the engine's
// connections, one of net's, a file, a pipe.
type place struct {
	name   string
	kind   testnet.Kind // of a connection
	engine bool         // a connection of the engine that the script is played on
	open   func(s *stage, reading bool) (near, far any)
}

func (p place) isConn() bool { return p.kind != "" }

// places are all kinds of places between which net or percore can copy inside the kernel.
var places = []place{
	{name: "the engine's TCP", kind: testnet.TCP4, engine: true},
	{name: "the engine's unix", kind: testnet.Unix, engine: true},
	{name: "net's TCP", kind: testnet.TCP4},
	{name: "net's unix", kind: testnet.Unix},
	{name: "a file", open: func(s *stage, reading bool) (near, far any) {
		f := testnet.TempFile(s, nil)
		s.names = append(s.names, f.Name(), "<file>")
		other, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
		if err != nil {
			s.Fatalf("opening a file again: %v", err)
		}
		s.Cleanup(func() { other.Close() })
		return f, other
	}},
	{name: "a pipe", open: func(s *stage, reading bool) (near, far any) {
		r, w, err := os.Pipe()
		if err != nil {
			s.Fatalf("pipe: %v", err)
		}
		s.Cleanup(func() { r.Close(); w.Close() })
		if reading {
			return r, w
		}
		return w, r
	}},
}

// A side is one end of a copy. near is the end that is copied from or to; far feeds it or reads the
// arriving bytes.
type side struct {
	place
	near io.ReadWriteCloser
	far  io.ReadWriteCloser
}

// side opens a place. If reading is set, the copy comes from there.
func (s *stage) side(p place, name string, reading bool) *side {
	if !p.isConn() {
		near, far := p.open(s, reading)
		return &side{p, near.(io.ReadWriteCloser), far.(io.ReadWriteCloser)}
	}
	listen := testnet.ListenFunc(net.Listen)
	if p.engine {
		listen = s.engine.listen
	}
	ln := testnet.Listen(s, listen, p.kind)
	s.nameAddr(ln.Addr(), name+"'s listener")
	near, far := testnet.Connect(s, ln)
	s.nameAddr(far.LocalAddr(), "a peer") // both may have the same port
	return &side{p, near, far}
}

// actor returns the near end, which must be a connection. Its methods wait for something to become
// visible.
func (d *side) actor(s *stage) *actor { return &actor{Conn: d.near.(net.Conn), stage: s, name: d.name} }

// feed writes from the far end, as fast as the copy reads, and closes it.
func (d *side) feed(data []byte) {
	go func() {
		d.far.Write(data)
		d.far.Close()
	}()
}

// has makes n bytes wait at the near end, without an end of the stream after them.
func (d *side) has(s *stage, n int) {
	if _, err := d.far.Write(pattern(n)); err != nil {
		s.Fatalf("writing to %s: %v", d.name, err)
	}
	if d.isConn() {
		d.actor(s).awaitReadable(n)
	}
}

// arriving reads from the far end of a destination, to the end.
func (d *side) arriving(s *stage) *pending {
	return s.begin("the reader of "+d.name, func() string {
		data, err := io.ReadAll(d.far)
		return fmt.Sprintf("arrived: %s %s", digest(data), describeError(err))
	})
}

func (d *side) setDeadline(s *stage, reading bool, at time.Time) {
	dl := d.near.(interface {
		SetReadDeadline(time.Time) error
		SetWriteDeadline(time.Time) error
	})
	set := dl.SetWriteDeadline
	if reading {
		set = dl.SetReadDeadline
	}
	if err := set(at); err != nil {
		s.Fatalf("setting a deadline on %s: %v", d.name, err)
	}
}

// breakOff makes writes to the near end fail: the reader is gone.
func (d *side) breakOff(s *stage) {
	if !d.isConn() {
		d.far.Close()
		return
	}
	if tcp, ok := d.far.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	d.far.Close()
	d.actor(s).awaitBroken()
}

// A copying is a situation for a copy between two places.
type copying struct {
	name string
	play func(s *stage, from, to *side)
	fits func(from, to place) bool // nil: any two places
}

// copy notes the result of a copy, and returns how much was copied.
func (s *stage) copy(what string, from, to *side) (n int64) {
	n, err := io.Copy(to.near, from.near)
	s.note("%s", describeCopy(what, n, err))
	return n
}

func copyOutcome(what string, w io.Writer, r io.Reader) string {
	n, err := io.Copy(w, r)
	return describeCopy(what, n, err)
}

const copyBytes = 300_000

func fromStream(from, _ place) bool { return from.name != "a file" }
func toStream(_, to place) bool     { return to.name != "a file" }
func streams(from, to place) bool   { return fromStream(from, to) && toStream(from, to) }

var copyings = []copying{{
	name: "all of it",
	play: func(s *stage, from, to *side) {
		from.feed(pattern(copyBytes))
		if from.name == "a file" { // written by then
			testnet.Eventually(s, "the file is written", func() bool {
				info, err := os.Stat(from.near.(*os.File).Name())
				return err == nil && info.Size() == copyBytes
			})
		}
		if to.name == "a file" {
			s.copy("copy", from, to)
			s.noteOffset(to.near.(*os.File))
			arrived, err := io.ReadAll(to.far)
			s.note("arrived: %s %s", digest(arrived), describeError(err))
			return
		}
		arriving := to.arriving(s)
		s.copy("copy", from, to)
		s.copy("copy at the end", from, to)
		to.near.Close()
		arriving.end()
	},
}, {
	name: "limits",
	play: func(s *stage, from, to *side) {
		from.has(s, 10_000)
		for _, limit := range []int64{-1, 0, 1, 999} {
			limited := &io.LimitedReader{R: from.near, N: limit}
			s.note("%s, left %d", copyOutcome(fmt.Sprintf("limit of %d", limit), to.near, limited), limited.N)
		}
		from.far.Close()
		limited := &io.LimitedReader{R: from.near, N: 20_000}
		s.note("%s, left %d", copyOutcome("beyond the end", to.near, limited), limited.N)
		limited = &io.LimitedReader{R: from.near, N: 5}
		s.note("%s, left %d", copyOutcome("at the end", to.near, limited), limited.N)
		s.note("%s", copyOutcome("a limit of a limit", to.near, io.LimitReader(io.LimitReader(from.near, 7), 9)))
		to.near.Close()
		arrived, err := io.ReadAll(to.far)
		s.note("arrived: %s %s", digest(arrived), describeError(err))
	},
}, {
	name: "the source's deadline has passed",
	fits: fromStream,
	play: func(s *stage, from, to *side) {
		from.has(s, 10)
		from.setDeadline(s, true, longAgo)
		s.copy("copy", from, to)
		from.setDeadline(s, true, time.Time{})
		from.far.Close()
		s.copy("afterwards", from, to)
	},
}, {
	name: "the source's deadline passes",
	fits: fromStream,
	play: func(s *stage, from, to *side) {
		from.has(s, 10)
		s.waitInTime(func(wait time.Duration) bool {
			from.setDeadline(s, true, time.Now().Add(wait))
			return s.copy("copy", from, to) > 0
		})
	},
}, {
	name: "the source is closed",
	play: func(s *stage, from, to *side) {
		from.has(s, 10)
		from.near.Close()
		s.copy("copy", from, to)
	},
}, {
	name: "the source is closed meanwhile",
	fits: fromStream,
	play: func(s *stage, from, to *side) {
		p := s.begin("copy", func() string { return copyOutcome("copy", to.near, from.near) })
		from.near.Close()
		p.end()
	},
}, {
	name: "the source is reset",
	fits: func(from, _ place) bool { return from.kind.IsTCP() },
	play: func(s *stage, from, to *side) {
		p := s.begin("copy", func() string { return copyOutcome("copy", to.near, from.near) })
		from.far.(*net.TCPConn).SetLinger(0)
		from.far.Close()
		p.end()
		s.copy("afterwards", from, to)
	},
}, {
	name: "the destination is closed",
	play: func(s *stage, from, to *side) {
		from.has(s, 10)
		to.near.Close()
		s.copy("copy", from, to)
	},
}, {
	name: "the destination's deadline has passed",
	fits: toStream,
	play: func(s *stage, from, to *side) {
		from.has(s, 10)
		to.setDeadline(s, false, longAgo)
		s.copy("copy", from, to)
	},
}, {
	name: "the destination is gone",
	fits: toStream,
	play: func(s *stage, from, to *side) {
		from.has(s, 10)
		to.breakOff(s)
		s.copy("copy", from, to)
	},
}, {
	name: "the destination's deadline passes",
	fits: streams,
	play: func(s *stage, from, to *side) {
		var n int64
		p := s.beginFlood(from, to, &n)
		first := to.firstByte(s)
		to.setDeadline(s, false, soon())
		p.end()
		to.near.Close()
		rest, err := io.ReadAll(to.far)
		arrived := append(first, rest...)
		s.note("as counted: %t, as sent: %t %s", int64(len(arrived)) == n, bytes.Equal(arrived, pattern(len(arrived))), describeError(err))
		from.near.Close()
	},
}, {
	name: "the destination is closed meanwhile",
	fits: streams,
	play: func(s *stage, from, to *side) {
		var n int64
		p := s.beginFlood(from, to, &n)
		to.firstByte(s)
		to.near.Close()
		p.end()
		from.near.Close()
	},
}}

// beginFlood starts to copy more than fits into the destination, which is not read. n is the count
// once the copy has ended.
func (s *stage) beginFlood(from, to *side, n *int64) *pending {
	go from.far.Write(pattern(muchData))
	return s.begin("copy", func() string {
		var err error
		*n, err = io.Copy(to.near, from.near)
		return fmt.Sprintf("copy: some: %t %s", *n > 0, describeError(err))
	})
}

// firstByte waits until something arrives and returns its first byte.
func (d *side) firstByte(s *stage) []byte {
	first := make([]byte, 1)
	if _, err := io.ReadFull(d.far, first); err != nil {
		s.Fatalf("reading from %s: %v", d.name, err)
	}
	return first
}

// TestDiffZeroCopy copies with io.Copy between any two places, at least one of them a connection of
// the engine, in every situation.
func TestDiffZeroCopy(t *testing.T) {
	if percoreIsNet() {
		t.Skip("package net doesn't see its connections in percore's, and copies through a buffer, whose errors are wrapped otherwise")
	}
	for _, from := range places {
		for _, to := range places {
			if !from.engine && !to.engine {
				continue
			}
			for _, c := range copyings {
				if c.fits != nil && !c.fits(from, to) {
					continue
				}
				t.Run(fmt.Sprintf("from %s to %s/%s", from.name, to.name, c.name), func(t *testing.T) {
					testnet.NoLeaks(t)
					compareEngines(t, script{play: func(s *stage) {
						c.play(s, s.side(from, "source", true), s.side(to, "destination", false))
					}}, from.kind, netEngine, percoreEngine)
				})
			}
		}
	}
}
