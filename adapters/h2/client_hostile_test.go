package h2

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// hostile sends frames made up by chance to a client, some of which a server may send, until it has
// enough or the client is gone. It reads nothing, or all.
func hostile(nc net.Conn, r *rand.Rand) {
	defer nc.Close()
	if r.IntN(2) == 0 {
		go func() { _, _ = io.Copy(io.Discard, nc) }()
	}
	frame := func(typ, flags byte, id uint32, payload []byte) bool {
		b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), typ, flags}
		b = append(binary.BigEndian.AppendUint32(b, id), payload...)
		_, err := nc.Write(b[:len(b)-r.IntN(2)*r.IntN(2)*r.IntN(2)*r.IntN(len(b))]) // one in eight is cut
		return err == nil
	}
	noise := func(n int) []byte {
		b := make([]byte, r.IntN(n+1))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	number := func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
	ok := r.IntN(10) == 0 || frame(frames.Settings, 0, 0, nil)
	for i := 0; ok && i < 30; i++ {
		id := uint32(r.IntN(24))
		switch r.IntN(10) {
		case 0, 1, 2: // :status 200
			ok = frame(frames.Headers, frames.EndHeaders|byte(r.IntN(2)), id, []byte{0x88})
		case 3, 4:
			ok = frame(frames.Data, byte(r.IntN(2)), id, noise(2000))
		case 5:
			ok = frame(frames.RSTStream, 0, id, number(uint32(r.IntN(16))))
		case 6:
			ok = frame(frames.WindowUpdate, 0, id, number(uint32(r.IntN(3)*r.IntN(1<<30))))
		case 7:
			ok = frame(frames.Settings, 0, 0, append([]byte{0, byte(r.IntN(7))}, number(uint32(r.IntN(1<<20)))...))
		case 8:
			ok = frame(frames.GoAway, 0, 0, append(number(id), number(uint32(r.IntN(14)))...))
		default:
			ok = frame(byte(r.IntN(12)), byte(r.Uint32()), id, noise(40))
		}
		if r.IntN(5) == 0 {
			time.Sleep(time.Millisecond) // lets the client answer in between
		}
	}
}

// TestClientHostile makes calls to servers that send anything: each call comes to an end, and nothing is
// left of it.
func TestClientHostile(t *testing.T) {
	testnet.NoLeaks(t)
	seed := rand.Uint64()
	for i := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, i))
		l := testnet.Listen(t, net.Listen, testnet.TCP4)
		served := make(chan struct{})
		go func() {
			defer close(served)
			if nc, err := l.Accept(); err == nil {
				hostile(nc, r)
			}
		}()
		nc, err := percore.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client := NewClient(ClientConfig{BeginTimeout: testnet.HangTimeout})
		c, err := client.Attach(nc, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
		var calls sync.WaitGroup
		for j := range 8 {
			calls.Go(func() {
				_, _, _, _ = callWith(ctx, c, Message{Body: make([]byte, j*9000), End: true})
			})
		}
		calls.Wait()
		if ctx.Err() != nil {
			t.Fatalf("seed %d, %d: the calls hang", seed, i)
		}
		cancel()
		testnet.Receive(t, "the server's end", served)
		if stats := client.Stats(); stats.Streams != 0 {
			t.Fatalf("seed %d, %d: got %+v behind the last call", seed, i, stats)
		}
		client.Close()
		testnet.Eventually(t, "the connection's end", func() bool { return client.Stats().Conns == 0 })
		l.Close()
	}
}
