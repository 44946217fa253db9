package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithCheck(pool.CheckLeaks)) }

// start serves a broker and returns the listener.
func start(t *testing.T) net.Listener {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		testnet.Receive(t, "the server's end", done)
	})
	return ln
}

// connectClient connects a client of the paho library.
func connectClient(t *testing.T, ln net.Listener, id string) paho.Client {
	t.Helper()
	c := paho.NewClient(paho.NewClientOptions().AddBroker("tcp://" + ln.Addr().String()).
		SetClientID(id).SetProtocolVersion(4).SetAutoReconnect(false).SetConnectTimeout(testnet.HangTimeout))
	wait(t, c.Connect())
	t.Cleanup(func() { c.Disconnect(0) })
	return c
}

// wait waits until the library says that something is done.
func wait(t *testing.T, token paho.Token) {
	t.Helper()
	if !token.WaitTimeout(testnet.HangTimeout) {
		t.Fatal("no answer from the broker")
	}
	if err := token.Error(); err != nil {
		t.Fatal(err)
	}
}

// subscribe returns what a client receives from now on, as "topic=message/QoS".
func subscribe(t *testing.T, c paho.Client, filter string, qos byte) <-chan string {
	t.Helper()
	received := make(chan string, 1000)
	wait(t, c.Subscribe(filter, qos, func(_ paho.Client, m paho.Message) {
		received <- fmt.Sprintf("%s=%s/%d", m.Topic(), m.Payload(), m.Qos())
	}))
	return received
}

// TestLibrary uses a real client library, with topics and filters from the standard (4.7).
func TestLibrary(t *testing.T) {
	ln := start(t)
	alice, bob := connectClient(t, ln, "alice"), connectClient(t, ln, "")
	for _, c := range []struct{ filter, topic string }{
		{"sport/tennis/player1/#", "sport/tennis/player1"},
		{"sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"},
		{"sport/#", "sport"},
		{"#", "a/b"},
		{"+/tennis/#", "sport/tennis/player1"},
		{"sport/+", "sport/"},
		{"+/+", "/finance"},
		{"/+", "/finance"},
		{"exact", "exact"},
		{"$internal/+", "$internal/load"},
	} {
		received := subscribe(t, alice, c.filter, 1)
		for qos := range byte(2) {
			wait(t, bob.Publish(c.topic, qos, false, "hello"))
			if got, want := testnet.Receive(t, "a message", received), fmt.Sprintf("%s=hello/%d", c.topic, qos); got != want {
				t.Errorf("%s: got %s, want %s", c.filter, got, want)
			}
		}
		wait(t, alice.Unsubscribe(c.filter))
	}
	// A message that doesn't match doesn't come before one that does.
	for _, c := range []struct{ filter, topic string }{
		{"sport/+", "sport"},
		{"sport/+", "sport/tennis/player1"},
		{"+", "/finance"},
		{"#", "$internal/load"},
		{"+/load", "$internal/load"},
		{"exact", "Exact"},
		{"exact", "exact/"},
	} {
		received := subscribe(t, alice, c.filter, 0)
		end := subscribe(t, alice, "end", 0)
		wait(t, bob.Publish(c.topic, 1, false, "hello"))
		wait(t, bob.Publish("end", 1, false, "end"))
		for got := ""; got != "end=end/0"; {
			select {
			case got = <-end:
			case got = <-received:
				if got != "end=end/0" { // # and + match it
					t.Errorf("%s: got %s", c.filter, got)
				}
			case <-time.After(testnet.HangTimeout):
				t.Fatal("the last message did not come")
			}
		}
		wait(t, alice.Unsubscribe(c.filter, "end"))
	}
}

// TestOrder has several clients publish with QoS 1 to several: all get the messages of each in order.
func TestOrder(t *testing.T) {
	ln := start(t)
	const clients, messages = 4, 100
	var conns []paho.Client
	var received []<-chan string
	for i := range clients {
		c := connectClient(t, ln, fmt.Sprint("client ", i))
		conns, received = append(conns, c), append(received, subscribe(t, c, "from/+", 1))
	}
	done := make(chan error, clients)
	for i, c := range conns {
		go func() {
			for n := range messages {
				token := c.Publish(fmt.Sprint("from/", i), 1, false, fmt.Sprint(n))
				if !token.WaitTimeout(testnet.HangTimeout) || token.Error() != nil {
					done <- fmt.Errorf("message %d of client %d: %v", n, i, token.Error())
					return
				}
			}
			done <- nil
		}()
	}
	for range conns {
		if err := testnet.Receive(t, "a publisher's end", done); err != nil {
			t.Fatal(err)
		}
	}
	for i := range conns {
		var next [clients]int
		for range clients * messages {
			var from, n int
			got := testnet.Receive(t, "a message", received[i])
			if _, err := fmt.Sscanf(got, "from/%d=%d/1", &from, &n); err != nil || n != next[from] {
				t.Fatalf("client %d got %s, %v, want message %d", i, got, err, next[from])
			}
			next[from]++
		}
	}
}

// TestSameID: a client that connects again takes the place of its old connection.
func TestSameID(t *testing.T) {
	ln := start(t)
	first := dial(t, ln, "twin", 0)
	second := dial(t, ln, "twin", 0)
	expectEnd(t, first)
	second.send(t, []byte{typePingreq << 4, 0})
	second.expect(t, []byte{typePingresp << 4, 0})
}

// raw is a client without a library.
type raw struct {
	net.Conn
	r *bufio.Reader
}

// dial connects a raw client. keepAlive is in seconds.
func dial(t *testing.T, ln net.Listener, id string, keepAlive uint16) *raw {
	t.Helper()
	conn := testnet.Dial(t, ln)
	c := &raw{conn, bufio.NewReader(conn)}
	c.send(t, connectPacket(4, 2, keepAlive, id))
	c.expect(t, []byte{typeConnack << 4, 2, 0, accepted})
	return c
}

func connectPacket(version, flags byte, keepAlive uint16, id string) []byte {
	p := appendHead(nil, typeConnect, 0, 12+len(id))
	p = append(p, "\x00\x04MQTT"...)
	p = append(p, version, flags, byte(keepAlive>>8), byte(keepAlive), byte(len(id)>>8), byte(len(id)))
	return append(p, id...)
}

// subscribe subscribes to one filter.
func (c *raw) subscribe(t *testing.T, filter string, qos byte) {
	t.Helper()
	p := appendHead(nil, typeSubscribe, 2, 5+len(filter))
	p = append(p, 0, 1, byte(len(filter)>>8), byte(len(filter)))
	c.send(t, append(append(p, filter...), qos))
	c.expect(t, []byte{typeSuback << 4, 3, 0, 1, qos})
}

func (c *raw) send(t *testing.T, p []byte) {
	t.Helper()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := c.Write(p); err != nil {
		t.Fatal(err)
	}
}

func (c *raw) expect(t *testing.T, want []byte) {
	t.Helper()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c.r, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %.100q, %v, want %.100q", got, err, want)
	}
}

// expectEnd reads on until the broker has closed the connection.
func expectEnd(t *testing.T, c *raw) {
	t.Helper()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := io.Copy(io.Discard, c.r); os.IsTimeout(err) {
		t.Fatal("the connection stayed open")
	}
}

// TestKeepAlive: a client that says nothing for one and a half times its keep-alive is sent away.
func TestKeepAlive(t *testing.T) {
	ln := start(t)
	began := time.Now()
	c := dial(t, ln, "silent", 1)
	c.send(t, []byte{typePingreq << 4, 0})
	c.expect(t, []byte{typePingresp << 4, 0})
	expectEnd(t, c)
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("the connection ended after %v, want 1.5s at least", took)
	}
}

// TestSlowSubscriber has one that doesn't read: with QoS 0 it misses messages and stays, with QoS 1 it
// is sent away. Others get all, and the memory stays within the limits.
func TestSlowSubscriber(t *testing.T) {
	ln := start(t)
	slow, strict, reader, publisher := dial(t, ln, "slow", 0), dial(t, ln, "strict", 0), dial(t, ln, "reader", 0), dial(t, ln, "publisher", 0)
	slow.subscribe(t, "news", 0)
	strict.subscribe(t, "news", 1)
	reader.subscribe(t, "news", 1)
	const messages, size = 400, 64 << 10 // 25 MiB: more than sockets and limits hold
	message := bytes.Repeat([]byte("x"), size)
	for n := range uint16(messages) {
		id := n + 1
		publisher.send(t, appendPublish(nil, 1, id, "news", message))
		publisher.expect(t, []byte{typePuback << 4, 2, byte(id >> 8), byte(id)})
		reader.expect(t, appendPublish(nil, 1, id, "news", message))
		reader.send(t, []byte{typePuback << 4, 2, byte(id >> 8), byte(id)})
		// Two backlogs and what is on its way, in buffers whose sizes are powers of two.
		if got := pool.ReadStats().BytesInUse; got > 2*(behindMax+backlogMax)+8*size {
			t.Fatalf("got %d bytes of buffers in use", got)
		}
	}
	strict.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if n, err := io.Copy(io.Discard, strict.r); os.IsTimeout(err) || n >= messages*size {
		t.Errorf("the subscriber of QoS 1 got %d bytes, %v; want fewer, and the end", n, err)
	}
	slow.send(t, []byte{typePingreq << 4, 0})
	slow.SetDeadline(time.Now().Add(testnet.HangTimeout))
	got := 0
	for {
		kind, body, err := readPacket(slow.r)
		if err != nil {
			t.Fatalf("after %d messages: %v", got, err)
		}
		if kind == typePingresp {
			break
		}
		if !bytes.HasSuffix(body, message) {
			t.Fatal("a message is wrong")
		}
		got++
	}
	if got == 0 || got >= messages {
		t.Errorf("the slow subscriber got %d messages of %d, want some", got, messages)
	}
}

// TestFilterMemory subscribes to as much as a client may, in filters of one level and in the
// deepest: the memory stays within the bound, and comes back.
func TestFilterMemory(t *testing.T) {
	for name, filter := range map[string]func(i int) string{
		"flat":     func(i int) string { return fmt.Sprint(i) },
		"long":     func(i int) string { return fmt.Sprint(i) + strings.Repeat("x", 60_000) },
		"deep":     func(i int) string { return fmt.Sprint(i) + strings.Repeat("/", levelsMax-1) },
		"too deep": func(i int) string { return fmt.Sprint(i) + strings.Repeat("/", 60_000) },
	} {
		b := newBroker()
		c := &client{filters: make(map[string]bool)}
		before := testnet.HeapBytes()
		granted := 0
		for i := range filtersMax + 1 {
			if f := filter(i); isFilter(f) && c.admit(f) {
				b.subscribe(c, f, 0)
				granted++
			}
		}
		if got := testnet.HeapBytes() - before; got > 2*memoryMax || granted > filtersMax || granted == 0 != (name == "too deep") {
			t.Errorf("%s: %d filters were granted, and take %d bytes, want %d at most", name, granted, got, 2*memoryMax)
		}
		for f := range c.filters {
			c.memory -= filterMemory(f)
		}
		if b.leave(c); c.memory != 0 || len(b.topics.children) > 0 {
			t.Errorf("%s: %d bytes and %d nodes are left", name, c.memory, len(b.topics.children))
		}
	}
}

// readPacket reads any packet.
func readPacket(r *bufio.Reader) (kind byte, body []byte, err error) {
	first, err := r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	length, err := binary.ReadUvarint(r) // the same encoding
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, length)
	_, err = io.ReadFull(r, body)
	return first >> 4, body, err
}

// TestRefusals sends what the broker doesn't take: it says so where the standard has an answer, and
// ends the connection.
func TestRefusals(t *testing.T) {
	ln := start(t)
	hello := connectPacket(4, 2, 0, "x")
	okay := "\x20\x02\x00\x00"
	for name, c := range map[string]struct{ packets, answer string }{
		"no CONNECT":       {"\xc0\x00", ""},
		"two CONNECTs":     {string(hello) + string(hello), okay},
		"version 5":        {string(connectPacket(5, 2, 0, "x")), "\x20\x02\x00\x01"},
		"another protocol": {"\x10\x0d\x00\x04HTTP\x04\x02\x00\x00\x00\x01x", ""},
		"no name":          {string(connectPacket(4, 0, 0, "")), "\x20\x02\x00\x02"},
		"a will":           {string(connectPacket(4, 6, 0, "x")), "\x20\x02\x00\x03"},
		"QoS 2":            {string(hello) + "\x34\x05\x00\x01a\x00\x01", okay},
		"a wildcard":       {string(hello) + "\x30\x04\x00\x02a#", okay},
		"cut off":          {string(hello) + "\x30\x02\x00\x05", okay},
		"long":             {string(hello) + "\x30\xff\xff\xff\x7f", okay},
		"endless length":   {string(hello) + "\x30\xff\xff\xff\xff\xff", okay},
		"no filter":        {string(hello) + "\x82\x02\x00\x01", okay},
		"a deep topic":     {string(hello) + string(appendPublish(nil, 0, 0, strings.Repeat("/", levelsMax), nil)), okay},
		"DISCONNECT":       {string(hello) + "\xe0\x00", okay},
	} {
		conn := testnet.Dial(t, ln)
		conn.SetDeadline(time.Now().Add(testnet.HangTimeout))
		io.WriteString(conn, c.packets)
		answer, err := io.ReadAll(conn)
		if os.IsTimeout(err) || string(answer) != c.answer {
			t.Errorf("%s: got %q, %v, want %q", name, answer, err, c.answer)
		}
	}
	client := dial(t, ln, "client", 0)
	client.send(t, []byte("\x82\x08\x00\x01\x00\x03a/#\x02"))
	client.expect(t, []byte{typeSuback << 4, 3, 0, 1, 1}) // QoS 1 instead of 2
	client.send(t, []byte("\x82\x07\x00\x01\x00\x02a#\x02"))
	client.expect(t, []byte{typeSuback << 4, 3, 0, 1, subscribeFailed})
	for _, c := range []struct {
		levels int
		answer byte
	}{{levelsMax, 0}, {levelsMax + 1, subscribeFailed}} {
		filter := strings.Repeat("/", c.levels-1)
		p := appendHead(nil, typeSubscribe, 2, 5+len(filter))
		p = append(p, 0, 1, 0, byte(len(filter)))
		client.send(t, append(append(p, filter...), 0))
		client.expect(t, []byte{typeSuback << 4, 3, 0, 1, c.answer})
	}
}

func FuzzPacket(f *testing.F) {
	f.Add(connectPacket(4, 2, 60, "x"))
	f.Add(appendPublish(nil, 1, 7, "a/b", []byte("hello")))
	f.Add([]byte("\x82\x08\x00\x01\x00\x03a/#\x01"))
	f.Fuzz(func(t *testing.T, p []byte) {
		pk, used, err := cutPacket(p)
		if err != nil || used == 0 {
			return
		}
		head := appendHead(nil, pk.kind, pk.flags, len(pk.body))
		if used > len(p) || !bytes.HasSuffix(p[:used], pk.body) || len(head) > used-len(pk.body) {
			t.Fatalf("%q: got a body of %d bytes, %d in total", p, len(pk.body), used)
		}
		switch pk.kind {
		case typeConnect:
			parseConnect(pk.body)
		case typePublish:
			if m, err := parsePublish(pk); err == nil {
				again, _, err := cutPacket(appendPublish(nil, m.qos, m.id, m.topic, m.message))
				if err != nil || !bytes.Equal(again.body, pk.body) {
					t.Errorf("%q: got %q again, %v", pk.body, again.body, err)
				}
			}
		case typeSubscribe, typeUnsubscribe:
			parseSubscribe(pk)
		}
	})
}
