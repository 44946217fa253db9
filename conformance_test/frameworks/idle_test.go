package frameworks

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	gorilla "github.com/gorilla/websocket"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/internal/testnet"
)

// An idleMessage is a message as any of the libraries returns it.
type idleMessage struct {
	kind int
	data []byte
}

// An idleSession echoes messages. It is a Session, and runs in a loop where no adapter is used.
type idleSession struct {
	read  func() (idleMessage, error)
	write func(idleMessage) error
	ended chan error
}

func (s *idleSession) Read() (idleMessage, error) { return s.read() }
func (s *idleSession) End(err error)              { s.ended <- err }

// Handle sends the length and the checksum of a message back, so that answers don't fill the kernel's
// buffers.
func (s *idleSession) Handle(m idleMessage) error {
	data := fmt.Sprintf("%d %d %08x", m.kind, len(m.data), crc32.ChecksumIEEE(m.data))
	return s.write(idleMessage{1, []byte(data)})
}

// An upgradeFunc takes a connection over, and returns its session and the library's connection.
type upgradeFunc func(w http.ResponseWriter, r *http.Request) (*idleSession, io.Closer, error)

// idleLibraries are the libraries, some with several ways of reading.
var idleLibraries = []struct {
	name    string
	upgrade upgradeFunc
}{
	{"gorilla", func(w http.ResponseWriter, r *http.Request) (*idleSession, io.Closer, error) {
		return upgradeGorilla(w, r, &gorilla.Upgrader{})
	}},
	{"gorilla,small", func(w http.ResponseWriter, r *http.Request) (*idleSession, io.Closer, error) {
		return upgradeGorilla(w, r, &gorilla.Upgrader{ReadBufferSize: 256, WriteBufferSize: 256})
	}},
	{"coder", func(w http.ResponseWriter, r *http.Request) (*idleSession, io.Closer, error) {
		c, err := coder.Accept(w, r, nil)
		if err != nil {
			return nil, nil, err
		}
		c.SetReadLimit(-1)
		ctx := context.Background()
		return &idleSession{
			read: func() (m idleMessage, err error) {
				kind, data, err := c.Read(ctx)
				return idleMessage{int(kind), data}, err
			},
			write: func(m idleMessage) error { return c.Write(ctx, coder.MessageType(m.kind), m.data) },
		}, closeNow{c}, nil
	}},
	{"gobwas", func(w http.ResponseWriter, r *http.Request) (*idleSession, io.Closer, error) {
		return upgradeGobwas(w, r, func(c io.ReadWriter) (idleMessage, error) {
			data, op, err := wsutil.ReadClientData(c)
			return idleMessage{int(op), data}, err
		})
	}},
	{"gobwas,streamed", func(w http.ResponseWriter, r *http.Request) (*idleSession, io.Closer, error) {
		return upgradeGobwas(w, r, func(c io.ReadWriter) (idleMessage, error) {
			control := wsutil.ControlFrameHandler(c, gobwas.StateServerSide)
			rd := &wsutil.Reader{Source: c, State: gobwas.StateServerSide, OnIntermediate: control}
			for {
				h, err := rd.NextFrame()
				if err != nil {
					return idleMessage{}, err
				}
				if h.OpCode.IsControl() {
					if err := control(h, rd); err != nil {
						return idleMessage{}, err
					}
					continue
				}
				data, err := io.ReadAll(rd)
				return idleMessage{int(h.OpCode), data}, err
			}
		})
	}},
}

// closeNow is a coder.Conn whose Close omits the closing handshake.
type closeNow struct{ c *coder.Conn }

func (c closeNow) Close() error { return c.c.CloseNow() }

func upgradeGorilla(w http.ResponseWriter, r *http.Request, u *gorilla.Upgrader) (*idleSession, io.Closer, error) {
	c, err := u.Upgrade(w, r, nil)
	if err != nil {
		return nil, nil, err
	}
	return &idleSession{
		read: func() (m idleMessage, err error) {
			m.kind, m.data, err = c.ReadMessage()
			return m, err
		},
		write: func(m idleMessage) error { return c.WriteMessage(m.kind, m.data) },
	}, c, nil
}

func upgradeGobwas(w http.ResponseWriter, r *http.Request, read func(io.ReadWriter) (idleMessage, error)) (*idleSession, io.Closer, error) {
	c, _, _, err := gobwas.UpgradeHTTP(r, w)
	if err != nil {
		return nil, nil, err
	}
	return &idleSession{
		read:  func() (idleMessage, error) { return read(c) },
		write: func(m idleMessage) error { return wsutil.WriteServerMessage(c, gobwas.OpCode(m.kind), m.data) },
	}, c, nil
}

// TestIdleWebSockets plays random programs of messages to each library, on net with a goroutine per
// connection and on each way with the adapter. The client must receive the same bytes.
func TestIdleWebSockets(t *testing.T) {
	for _, secret := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%t", secret), func(t *testing.T) {
			onEachWay(t, func(s *stage) {
				ended := make(chan error, 1)
				mux := http.NewServeMux()
				for _, library := range idleLibraries {
					mux.HandleFunc("/"+library.name, func(w http.ResponseWriter, r *http.Request) {
						if err := serveIdle(s, w, r, library.upgrade, ended); err != nil {
							s.Errorf("upgrading: %v", err)
						}
					})
				}
				var with setup
				if secret {
					with.serverTLS, with.clientTLS = testnet.TLS(s)
					with.serverTLS.NextProtos = []string{"http/1.1"}
				}
				st := s.start(&http.Server{Handler: mux}, with)
				programs := 8
				if testing.Short() {
					programs = 3
				}
				for _, library := range idleLibraries {
					for seed := range uint64(programs) {
						playIdle(s, st, library.name, with.clientTLS, seed)
						testnet.Receive(s, "the session ending", ended)
					}
				}
			})
		})
	}
}

// A jsonMessage is a message of TestIdleJSON.
type jsonMessage struct{ Text string }

// A jsonSession decodes messages in Read, and echoes them.
type jsonSession struct {
	read  func(*jsonMessage) error
	write func(jsonMessage) error
	ended chan error
}

func (s *jsonSession) Read() (m jsonMessage, err error) { return m, s.read(&m) }
func (s *jsonSession) Handle(m jsonMessage) error       { return s.write(m) }
func (s *jsonSession) End(err error)                    { s.ended <- err }

// TestIdleJSON: sessions decode JSON in Read, using each library's own functions. Their connections
// wait, and only messages are handled.
func TestIdleJSON(t *testing.T) {
	ctx := t.Context()
	ended := make(chan error, 1)
	decoders := map[string]func(w http.ResponseWriter, r *http.Request, compress bool) (*jsonSession, error){
		"coder": func(w http.ResponseWriter, r *http.Request, compress bool) (*jsonSession, error) {
			c, err := coder.Accept(w, r, &coder.AcceptOptions{CompressionMode: compression(compress)})
			return &jsonSession{
				read:  func(m *jsonMessage) error { return wsjson.Read(ctx, c, m) },
				write: func(m jsonMessage) error { return wsjson.Write(ctx, c, m) },
			}, err
		},
		"gorilla": func(w http.ResponseWriter, r *http.Request, compress bool) (*jsonSession, error) {
			c, err := (&gorilla.Upgrader{EnableCompression: compress}).Upgrade(w, r, nil)
			return &jsonSession{
				read:  func(m *jsonMessage) error { return c.ReadJSON(m) },
				write: func(m jsonMessage) error { return c.WriteJSON(m) },
			}, err
		},
		"gobwas": func(w http.ResponseWriter, r *http.Request, _ bool) (*jsonSession, error) {
			c, _, _, err := gobwas.UpgradeHTTP(r, w)
			return &jsonSession{
				read: func(m *jsonMessage) error {
					text, err := wsutil.ReadClientText(c)
					if err != nil {
						return err
					}
					return json.Unmarshal(text, m)
				},
				write: func(m jsonMessage) error {
					text, _ := json.Marshal(m)
					return wsutil.WriteServerText(c, text)
				},
			}, err
		},
		"coder,streamed": func(w http.ResponseWriter, r *http.Request, compress bool) (*jsonSession, error) {
			c, err := coder.Accept(w, r, &coder.AcceptOptions{CompressionMode: compression(compress)})
			var rest io.Reader
			return &jsonSession{
				read: func(*jsonMessage) (err error) {
					_, rest, err = c.Reader(ctx)
					return err
				},
				write: func(m jsonMessage) error {
					text, err := io.ReadAll(rest)
					if err != nil {
						return err
					}
					return c.Write(ctx, coder.MessageText, text)
				},
			}, err
		},
	}
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := wsadapter.NewUpgrade(w)
		s, err := decoders[r.URL.Query().Get("with")](up, r, r.URL.Query().Has("compress"))
		if err != nil {
			t.Errorf("upgrading: %v", err)
			return
		}
		s.ended = ended
		wsadapter.Start(up.Conn(), s)
	})}
	go srv.Serve(ln)
	defer srv.Close()
	for name := range decoders {
		for _, compress := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,compress=%t", name, compress), func(t *testing.T) {
				before := wsadapter.ReadStats()
				url := "ws://" + ln.Addr().String() + "/?with=" + name
				if compress {
					url += "&compress"
				}
				c, _, err := coder.Dial(ctx, url, &coder.DialOptions{CompressionMode: compression(compress)})
				if err != nil {
					t.Fatal(err)
				}
				defer c.CloseNow()
				for i := range 4 {
					if canPark(ln) {
						testnet.Eventually(t, "the connection waiting", func() bool { return wsadapter.ReadStats().Waiting == before.Waiting+1 })
					}
					want := jsonMessage{fmt.Sprint("message ", i, strings.Repeat(" again", 100*i))}
					var got jsonMessage
					if err := wsjson.Write(ctx, c, want); err != nil {
						t.Fatal(err)
					}
					if err := wsjson.Read(ctx, c, &got); err != nil || got != want {
						t.Fatalf("got %v, %v, want %v", got, err, want)
					}
				}
				c.CloseNow()
				testnet.Receive(t, "the session's end", ended)
			})
		}
	}
}

// compression returns the mode in which a message may refer to earlier ones.
func compression(on bool) coder.CompressionMode {
	if on {
		return coder.CompressionContextTakeover
	}
	return coder.CompressionDisabled
}

// serveIdle serves a connection with a library: on net in a loop, on other ways with the adapter.
func serveIdle(s *stage, w http.ResponseWriter, r *http.Request, upgrade upgradeFunc, ended chan error) error {
	adapted := s.way.name != "net"
	up := wsadapter.NewUpgrade(w)
	if adapted {
		w = up
	}
	session, c, err := upgrade(w, r)
	if err != nil {
		return err
	}
	session.ended = ended
	if adapted {
		wsadapter.Start(up.Conn(), session)
		return nil
	}
	defer c.Close()
	for {
		m, err := session.Read()
		if err == nil {
			err = session.Handle(m)
		}
		if err != nil {
			session.End(err)
			return nil
		}
	}
}

// playIdle plays a program to the server, and records the bytes of the answers.
func playIdle(s *stage, st *site, library string, config *tls.Config, seed uint64) {
	var c net.Conn = s.dial(st)
	defer c.Close()
	if config != nil {
		c = tls.Client(c, config)
	}
	before := wsadapter.ReadStats()
	fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", library)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		s.Fatalf("the handshake: %v, %v", resp, err)
	}
	answers := make(chan string, 1)
	go func() {
		all, err := io.ReadAll(br)
		answers <- fmt.Sprintf("%d bytes, %08x %v", len(all), crc32.ChecksumIEEE(all), err)
	}()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 1 + rnd.IntN(8) {
		var burst []byte // bytes that come together, unless they are cut
		for range 1 + rnd.IntN(5) {
			burst = appendRandomMessage(burst, rnd)
		}
		for cuts := rnd.IntN(4); cuts > 0; cuts-- {
			n := rnd.IntN(len(burst) + 1)
			c.Write(burst[:n])
			burst = burst[n:]
			if rnd.IntN(2) == 0 {
				time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
			}
		}
		c.Write(burst)
		if rnd.IntN(12) == 0 && st.engine {
			// Everything was read, and the connection waits, as it does after a tenth of a second.
			testnet.Eventually(s, "the connection waiting", func() bool { return wsadapter.ReadStats().Waiting == before.Waiting+1 })
		}
	}
	c.Write(appendClientFrame(nil, 0x88, []byte{3, 232}, 7))
	s.note("%s, program %d: %s", library, seed, testnet.Receive(s, "the answers", answers))
	if st.engine && wsadapter.ReadStats().Kept != before.Kept {
		s.Errorf("got %+v, want as before: %+v", wsadapter.ReadStats(), before)
	}
}

// appendRandomMessage appends a message, or a control frame.
func appendRandomMessage(b []byte, rnd *rand.Rand) []byte {
	sizes := []int{0, 1, 10, 125, 126, 1000, 4090, 5000, 70_000}
	text := func() []byte { return bytes.Repeat([]byte("x"), sizes[rnd.IntN(len(sizes))]) }
	switch rnd.IntN(6) {
	case 0:
		return appendClientFrame(b, 0x89, []byte("ping"), rnd.Uint32())
	case 1:
		return appendClientFrame(b, 0x8A, nil, rnd.Uint32())
	case 2:
		b = appendClientFrame(b, 0x01, text(), rnd.Uint32())
		b = appendClientFrame(b, 0x89, []byte("between"), rnd.Uint32())
		b = appendClientFrame(b, 0x00, text(), rnd.Uint32())
		return appendClientFrame(b, 0x80, nil, rnd.Uint32())
	}
	return appendClientFrame(b, 0x81+byte(rnd.IntN(2)), text(), rnd.Uint32())
}

// appendClientFrame appends a frame with a mask.
func appendClientFrame(b []byte, first byte, payload []byte, mask uint32) []byte {
	const masked = 0x80
	b = append(b, first)
	switch n := len(payload); {
	case n < 126:
		b = append(b, masked|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, masked|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, masked|127), uint64(n))
	}
	key := binary.BigEndian.AppendUint32(nil, mask)
	b = append(b, key...)
	for i, p := range payload {
		b = append(b, p^key[i%4])
	}
	return b
}
