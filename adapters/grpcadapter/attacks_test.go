package grpcadapter

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// An attack is what a hostile client of gRPC does on one connection. Those that HTTP/2 allows without
// gRPC are in package h2.
type attack struct {
	name     string
	settings []uint32 // of the client; otherwise its windows are open
	play     func(p *frames.Peer, send func())
	deaf     bool // the client doesn't read

	ends     bool // the server ends the connection
	answers  int  // calls that the server answers
	begun    int  // handlers that begin
	handlers int  // that may begin
	heap     int  // bytes that both ends may hold then, besides what the client has sent
	alloc    int  // bytes that both ends may allocate; 0: any number
	cost     int  // CPU time that both ends may use, in that of a plain call
}

// call adds the header of a call, with more fields.
func call(p *frames.Peer, id uint32, path string, more ...string) *frames.Peer {
	return p.Headers(id, false, append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "h",
		"content-type", "application/grpc", "te", "trailers"}, more...)...)
}

// The methods that are attacked.
const (
	unaryPath = "/percore.test.Attacked/Unary"
	chatPath  = "/percore.test.Attacked/Chat"
	waitPath  = "/percore.test.Attacked/Wait"
	floodPath = "/percore.test.Attacked/Flood"
)

// attackedService returns a service that counts the calls of its handlers.
func attackedService(called *atomic.Int32) *grpc.ServiceDesc {
	count := func(name string, h grpc.StreamHandler) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true, Handler: func(impl any, s grpc.ServerStream) error {
			called.Add(1)
			return h(impl, s)
		}}
	}
	unary := echo.Methods[0]
	handler := unary.Handler
	unary.Handler = func(impl any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		called.Add(1)
		return handler(impl, ctx, decode, i)
	}
	flood := wrapperspb.Bytes(make([]byte, 8<<10))
	return &grpc.ServiceDesc{
		ServiceName: "percore.test.Attacked", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{unary},
		Streams: []grpc.StreamDesc{
			count("Chat", chatHandler),
			count("Wait", func(_ any, s grpc.ServerStream) error { <-s.Context().Done(); return s.Context().Err() }),
			count("Flood", func(_ any, s grpc.ServerStream) (err error) {
				for err == nil {
					err = s.SendMsg(flood)
				}
				return err
			}),
		},
	}
}

// message returns a message with its head, which may lie.
func message(flag byte, length uint32, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flag}, length)) + body
}

// bomb returns what gzip makes of n times 4 MiB, and the head before it.
func bomb(n int) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = w.Write(make([]byte, 4<<20))
	_ = w.Close()
	packed := strings.Repeat(b.String(), n) // several streams are one, too
	return message(1, uint32(len(packed)), packed)
}

// sendBody adds DATA of any length.
func sendBody(p *frames.Peer, id uint32, body string, end bool) {
	const most = 16 << 10
	for ; len(body) > most; body = body[most:] {
		p.Data(id, body[:most], false)
	}
	p.Data(id, body, end)
}

const (
	some = 3000  // calls
	many = 50000 // messages, which still fit the window
)

// gRPCAttacks has the attacks of docs/LIMITS.md's table. The costs are five to ten times what was
// measured.
var gRPCAttacks = []attack{
	{name: "a message in DATA of one byte", begun: 1, handlers: 1, heap: 2 << 20, cost: 3000, play: func(p *frames.Peer, send func()) {
		b, _ := proto.Marshal(wrapperspb.Bytes(make([]byte, 20_000)))
		body := message(0, uint32(len(b)), string(b))
		call(p, 1, chatPath)
		for i := range body {
			p.Data(1, body[i:i+1], i == len(body)-1)
		}
		send()
	}, answers: 1},
	{name: "messages without a byte", begun: 1, handlers: 1, answers: 1, heap: 2 << 20, cost: 100000, play: func(p *frames.Peer, send func()) {
		call(p, 1, chatPath)
		sendBody(p, 1, strings.Repeat(message(0, 0, ""), many), true)
		send()
	}},
	{name: "a length of 4 GiB", answers: some, handlers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) {
			call(p, id, unaryPath).Data(id, message(0, 1<<32-1, ""), false)
		})},
	{name: "a length beyond the limit", answers: some, handlers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) {
			call(p, id, chatPath).Data(id, message(0, 4<<20+1, "x"), false)
		})},
	{name: "lengths of 4 MiB without the rest", begun: 1000, handlers: 1000, heap: 40 << 20, cost: 20000,
		play: frames.Until(1000, func(p *frames.Peer, id uint32) {
			call(p, id, chatPath).Data(id, message(0, 4<<20, "x"), false)
		})},
	{name: "lengths of 64 KiB without the rest", begun: 1000, handlers: 1000, heap: 40 << 20, cost: 20000,
		play: frames.Until(1000, func(p *frames.Peer, id uint32) {
			call(p, id, chatPath).Data(id, message(0, 64<<10, "x"), false)
		})},
	{name: "lengths of 68,000 bytes without the rest", begun: 1000, handlers: 1000, heap: 40 << 20, cost: 20000,
		play: frames.Until(1000, func(p *frames.Peer, id uint32) {
			call(p, id, chatPath).Data(id, message(0, 68_000, "x"), false)
		})},
	{name: "lengths of 1,100,000 bytes that stop", begun: 100, handlers: 100, heap: 20 << 20, cost: 10000,
		play: frames.Until(100, func(p *frames.Peer, id uint32) {
			sendBody(call(p, id, chatPath), id, message(0, 1_100_000, strings.Repeat("x", 17_100)), false)
		})},
	{name: "messages that stop in the middle", begun: 100, handlers: 100, heap: 16 << 20, cost: 10000,
		play: frames.Until(100, func(p *frames.Peer, id uint32) {
			sendBody(call(p, id, chatPath), id, message(0, 4<<20, strings.Repeat("x", 40<<10)), false)
		})},
	{name: "compressed without an encoding", answers: some, handlers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) { call(p, id, unaryPath).Data(id, message(1, 3, "abc"), true) })},
	{name: "encodings that are unknown", answers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) {
			call(p, id, unaryPath, "grpc-encoding", fmt.Sprint("tea", id)).Data(id, message(1, 3, "abc"), true)
		})},
	{name: "no gzip", answers: some, handlers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) {
			call(p, id, unaryPath, "grpc-encoding", "gzip").Data(id, message(1, 3, "abc"), true)
		})},
	{name: "gzip that becomes a thousand times as long", answers: 4, handlers: 4, heap: 8 << 20, alloc: 100 << 20, cost: 50000,
		play: func(p *frames.Peer, send func()) {
			b := bomb(30) // as long as fits the window
			frames.Until(4, func(p *frames.Peer, id uint32) {
				sendBody(call(p, id, unaryPath, "grpc-encoding", "gzip"), id, b, true)
			})(p, send)
		}},
	{name: "timeouts that are too long", answers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) {
			call(p, id, unaryPath, "grpc-timeout", strings.Repeat("9", 1000)+"H")
		})},
	{name: "deadlines that are far away", begun: some, handlers: some, heap: 100 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) { call(p, id, waitPath, "grpc-timeout", "99999999H") })},
	{name: "deadlines that pass at once", answers: some, handlers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) { call(p, id, waitPath, "grpc-timeout", "1u") })},
	{name: "paths without a slash, CVE-2026-33186", answers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) { call(p, id, strings.TrimPrefix(unaryPath, "/")) })},
	{name: "methods that are unknown, each another", answers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) { call(p, id, fmt.Sprint(unaryPath, id)) })},
	{name: "services that are unknown, with long names", answers: 500, heap: 16 << 20, cost: 100 * 500,
		play: frames.Until(500, func(p *frames.Peer, id uint32) {
			call(p, id, fmt.Sprint("/", strings.Repeat("ä", 4000), id, "/x"))
		})},
	{name: "metadata that is no base64", answers: some, heap: 16 << 20, cost: 30 * some,
		play: frames.Until(some, func(p *frames.Peer, id uint32) { call(p, id, unaryPath, "x-bin", "!") })},
	{name: "10,000 calls that are reset at once", handlers: 10_000, heap: 8 << 20, cost: 50000,
		play: frames.Until(10_000, func(p *frames.Peer, id uint32) { call(p, id, waitPath).Reset(id, 8) })},
	{name: "rapid reset, CVE-2023-44487", ends: true, handlers: 100_000, heap: 8 << 20, cost: 200000,
		play: frames.Until(100_000, func(p *frames.Peer, id uint32) { call(p, id, waitPath).Reset(id, 8) })},
	{name: "windows that stay closed", settings: []uint32{initialWindow, 0}, begun: 500, handlers: 500, heap: 50 << 20, cost: 20000,
		play: frames.Until(500, func(p *frames.Peer, id uint32) { call(p, id, floodPath) })},
	{name: "answers that are not read", deaf: true, begun: 500, handlers: 500, heap: 50 << 20, cost: 50000,
		play: frames.Until(500, func(p *frames.Peer, id uint32) { call(p, id, floodPath) })},
}

// initialWindow is the setting of the windows that streams begin with.
const initialWindow = 4

// TestAttacks plays each attack to servers of both kinds, on a connection of its own. The memory stays
// within a bound, and so do the handlers that are called and the CPU time. Another client is served
// meanwhile and afterwards, and no attack makes more metrics.
func TestAttacks(t *testing.T) {
	for _, kind := range serverKinds[1:] {
		t.Run(kind.name, func(t *testing.T) {
			plain := plainCost(t, kind)
			for _, a := range gRPCAttacks {
				t.Run(a.name, func(t *testing.T) { a.test(t, kind, plain) })
			}
		})
	}
}

// test plays an attack. The time that a virtual machine doesn't run may count as CPU time. That doesn't
// happen again and again.
func (a *attack) test(t *testing.T, kind serverKind, plain int64) {
	cost := int(a.attempt(t, kind) / plain)
	for range 4 {
		if cost > a.cost && !race.Enabled {
			cost = min(cost, int(a.attempt(t, kind)/plain))
		}
	}
	if cost > a.cost && !race.Enabled {
		t.Errorf("got the CPU time of %d calls, want %d at most", cost, a.cost)
	} else {
		t.Logf("the CPU time of %d calls", cost)
	}
}

// attempt plays the attack, and returns the CPU time that it took, in nanoseconds.
func (a *attack) attempt(t *testing.T, kind serverKind) int64 {
	testnet.NoLeaks(t)
	var called atomic.Int32
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := kind.makeOwn(nil, nil)
	serveOn(t, lis, srv, attackedService(&called), &echo)
	other := dialServer(t, lis)
	if err := callUnary(callContext(t), other, pattern(100)); err != nil {
		t.Fatal(err)
	}
	nc := testnet.Dial(t, lis)
	defer nc.Close()
	settings := a.settings
	if settings == nil {
		settings = []uint32{initialWindow, 1<<31 - 1}
	}
	p := frames.NewPeer(t, nc, settings...)
	p.Window(0, 1<<31-65536)
	var parts [][]byte
	a.play(p, func() {
		parts = append(parts, p.Out)
		p.Out = nil
	})
	parts = append(parts, p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Out)

	labels := countMetrics()
	heldBefore, allocBefore := memoryInUse()
	begin := testnet.CPUTime()
	answers := new(answerReader)
	if !a.deaf {
		answers = readAnswers(nc)
	}
	began := time.Now()
	for _, part := range parts {
		if _, err := nc.Write(part); err != nil { // the server has closed the connection
			break
		}
	}
	a.await(t, answers, &called, srv.Stats, began)
	if err := callUnary(callContext(t), other, pattern(100)); err != nil {
		t.Errorf("another client: %v", err)
	}
	end := testnet.CPUTime()

	held, alloc := memoryInUse()
	held, alloc = held-heldBefore, alloc-allocBefore
	t.Logf("%d bytes held, %d allocated, %d handlers", held, alloc, called.Load())
	if held > a.heap && !race.Enabled {
		t.Errorf("got %d bytes held, want %d at most", held, a.heap)
	}
	if alloc > a.alloc && a.alloc > 0 {
		t.Errorf("got %d bytes allocated, want %d at most", alloc, a.alloc)
	}
	if n := int(called.Load()); n > a.handlers {
		t.Errorf("got %d handlers called, want %d at most", n, a.handlers)
	}
	if n := countMetrics(); n != labels {
		t.Errorf("got %d figures, want %d as before", n, labels)
	}
	runtime.KeepAlive(parts)
	_ = nc.(*net.TCPConn).SetLinger(0)
	nc.Close()
	return int64(end - begin)
}

// await waits until the attack has had its effect.
func (a *attack) await(t *testing.T, answers *answerReader, called *atomic.Int32, stats func() Stats, began time.Time) {
	switch {
	case a.ends:
		select {
		case <-answers.ended:
		case <-answers.pong:
			// The limit is a rate, besides 40,000 calls. It doesn't stop what a slow machine can't do faster.
			if took := time.Since(began); took < 4*time.Second {
				t.Errorf("the server has read all of the attack, in %v", took)
			}
		}
	case !a.deaf:
		select {
		case <-answers.pong:
		case <-answers.ended:
			t.Fatal("the server has ended the connection")
		}
	}
	testnet.Eventually(t, "the answers", func() bool { return a.deaf || int(answers.n.Load()) >= a.answers })
	testnet.Eventually(t, "the handlers' begin", func() bool { return int(called.Load()) >= a.begun })
	testnet.Eventually(t, "the end of the other calls", func() bool { return stats().Calls <= a.begun-min(a.begun, a.answers) })
}

// answerReader reads what a server sends.
type answerReader struct {
	n     atomic.Int32 // streams that have ended well
	pong  chan bool    // closed when a PING is answered
	ended chan bool    // closed at the end of the connection
}

func readAnswers(nc net.Conn) *answerReader {
	r := &answerReader{pong: make(chan bool), ended: make(chan bool)}
	go func() {
		defer close(r.ended)
		payload := make([]byte, 64<<10)
		for head := make([]byte, 9); ; {
			if _, err := io.ReadFull(nc, head); err != nil {
				return
			}
			n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
			if _, err := io.ReadFull(nc, payload[:n]); err != nil {
				return
			}
			switch typ, flags := head[3], head[4]; {
			case (typ == frames.Headers || typ == frames.Data) && flags&frames.End != 0:
				r.n.Add(1)
			case typ == frames.Ping && flags&frames.Ack != 0:
				close(r.pong)
			}
		}
	}()
	return r
}

// memoryInUse returns how many bytes are held and have been allocated.
func memoryInUse() (held, alloc int) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse), int(m.TotalAlloc)
}

// countMetrics returns how many metrics there are, each with its label.
func countMetrics() (n int) {
	for _, a := range percore.ReadStats().Adapters {
		n += len(a.Metrics)
	}
	return n
}

// plainCost returns the CPU time of a plain call, for the client and the server.
func plainCost(t *testing.T, kind serverKind) int64 {
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	serveOn(t, lis, kind.makeOwn(nil, nil), &echo)
	nc := testnet.Dial(t, lis)
	defer nc.Close()
	p := frames.NewPeer(t, nc, initialWindow, 1<<31-1)
	p.Window(0, 1<<31-65536)
	const n = 3000
	frames.Until(n, func(p *frames.Peer, id uint32) { call(p, id, "/percore.test.Echo/Unary").Data(id, goodMessage, true) })(p, func() {})
	begin := testnet.CPUTime()
	answers := readAnswers(nc)
	p.Flush()
	testnet.Eventually(t, "the answers", func() bool { return answers.n.Load() >= n })
	end := testnet.CPUTime()
	return max(int64(end-begin)/n, 1)
}
