package pool_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/percore/percore/internal/pool"
)

// FuzzModel runs programs of random operations on buffers and on a model of them:
//
//  1. A program is a string of bytes; each operation takes two for its code and two
//     for its operand.
//  2. The model of a buffer is the byte that it is filled with, to its capacity, and a
//     number of references. If the pool lends memory twice, filling the one changes
//     the other.
//  3. After each operation the buffers are compared with their models, and at the end
//     all is released, and the counters have to balance.
func FuzzModel(f *testing.F) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 4))
		program := make([]byte, 600)
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(runModel)
}

type modelBuffer struct {
	b          *pool.Buffer
	raw        *[]byte // instead of b
	fill       byte
	references int
}

func (m *modelBuffer) memory() []byte {
	if m.raw != nil {
		return (*m.raw)[:cap(*m.raw)]
	}
	return m.b.Bytes()[:cap(m.b.Bytes())]
}

func runModel(t *testing.T, program []byte) {
	const programBytesMax, lengthBitsMax = 1200, 14 // some milliseconds
	p := pool.New(pool.Config{KeptBytesMax: 64 << 10})
	var all []*modelBuffer
	gets, fill := uint64(0), byte(0)
	set := func(m *modelBuffer) {
		fill++
		m.fill = fill
		copy(m.memory(), bytes.Repeat([]byte{fill}, len(m.memory())))
	}
	release := func(i int) {
		m := all[i]
		switch m.references--; {
		case m.raw != nil:
			p.PutBytes(m.raw)
		default:
			m.b.Release()
		}
		if m.references == 0 {
			all = append(all[:i], all[i+1:]...)
		}
	}
	for program = program[:min(len(program), programBytesMax)]; len(program) >= 4; program = program[4:] {
		code, operand := binary.LittleEndian.Uint16(program), int(binary.LittleEndian.Uint16(program[2:]))
		length := operand & (1<<(operand%(lengthBitsMax+1)) - 1)
		switch code %= 8; {
		case code <= 1 || len(all) == 0:
			all = append(all, &modelBuffer{b: p.Get(length), references: 1})
			gets++
			set(all[len(all)-1])
		case code == 2:
			all = append(all, &modelBuffer{raw: p.GetBytes(length), references: 1})
			gets++
			set(all[len(all)-1])
		case code == 3 && all[operand%len(all)].b != nil:
			m := all[operand%len(all)]
			m.b.Retain()
			m.references++
		case code == 4:
			set(all[operand%len(all)])
		case code == 5 && operand%50 == 0:
			runtime.GC()
		default:
			release(operand % len(all))
		}
		inUse := int64(0)
		for i, m := range all {
			memory := m.memory()
			inUse += int64(len(memory))
			if bytes.Count(memory, []byte{m.fill}) != len(memory) {
				t.Fatalf("buffer %d: got other bytes than it was filled with: its memory was lent twice", i)
			}
		}
		if s := p.Stats(); s.BuffersInUse != len(all) || s.BytesInUse != inUse || s.Gets != gets {
			t.Fatalf("got %+v, want %d buffers with %d bytes in use after %d gets", s, len(all), inUse, gets)
		}
	}
	for len(all) > 0 {
		release(0)
	}
	checkIdle(t, p)
}

// TestStress hands buffers from goroutine to goroutine, while the collector runs and
// the counters are read. Each goroutine finds the bytes that the one before wrote.
func TestStress(t *testing.T) {
	p := pool.New(pool.Config{LeakSampleEvery: 3})
	mail := make(chan *pool.Buffer, 16)
	const senders, messages = 4, 2000
	var sending, receiving sync.WaitGroup
	for sender := range senders {
		sending.Go(func() {
			for i := range messages {
				b := p.Get(1 << (i % 16))
				s := b.Bytes()
				copy(s, bytes.Repeat([]byte{byte(len(s) + sender)}, len(s)))
				s[0] = byte(sender)
				if i%3 == 0 {
					b.Retain()
					mail <- b
				}
				mail <- b
				if i%500 == 0 {
					runtime.GC()
					p.Stats()
				}
			}
		})
		receiving.Go(func() {
			for b := range mail {
				s := b.Bytes()
				if want := byte(len(s) + int(s[0])); bytes.Count(s[1:], []byte{want}) != len(s)-1 {
					t.Errorf("got other bytes than %#x in %d from sender %d: two had the buffer at once", want, len(s), s[0])
				}
				b.Release()
			}
		})
	}
	sending.Wait()
	close(mail)
	receiving.Wait()
	checkIdle(t, p)
	if got := p.Stats().Gets; got != senders*messages {
		t.Errorf("got %d gets, want %d", got, senders*messages)
	}
}
