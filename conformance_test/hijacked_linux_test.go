package conformance

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestHijackedBelowAdapters hijacks connections on which more bytes have followed the request than fit
// into net/http's buffer. It gives them to the other adapters, which must receive all bytes, in order.
func TestHijackedBelowAdapters(t *testing.T) {
	frames := maskedFrames(200)
	for _, tt := range []struct {
		name    string
		takeAll func(t *testing.T, rw http.ResponseWriter, got chan<- []byte)
		tls     bool
	}{
		{"reactor", attachHijacked, false},
		{"wsadapter", upgradeHijacked, false},
		{"wsadapter over TLS", upgradeHijacked, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := make(chan []byte, 1)
			srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { tt.takeAll(t, rw, got) })}
			var client *tls.Config
			if tt.tls {
				srv.TLSConfig, client = testnet.TLS(t)
			}
			ln := testnet.Listen(t, percoreEngine.listen, testnet.TCP4)
			testnet.ServeWeb(t, adapterEngine().wrap(srv), ln, tt.tls)
			for _, size := range []int{0, 3000, 4000, 5000, 9000, 20000} {
				for _, cut := range []int{0, size / 2, size + 200, size + 5000} {
					c := testnet.Dial(t, ln)
					_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
					if tt.tls {
						c = tls.Client(c, client)
					}
					text := "GET / HTTP/1.1\r\nHost: h\r\nX-Long: " + strings.Repeat("l", size) + "\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + string(frames)
					io.WriteString(c, text[:cut])
					io.WriteString(c, text[cut:])
					all := testnet.Receive(t, "all bytes", got)
					if !bytes.Equal(all, frames) {
						t.Errorf("header of %d bytes, cut at %d: got %d bytes, want %d, the same", size, cut, len(all), len(frames))
					}
					c.Close()
				}
			}
		})
	}
}

// maskedFrames returns n different messages as a WebSocket client sends them.
func maskedFrames(n int) (frames []byte) {
	for i := range n {
		text := fmt.Sprintf("%0100d", i)
		frames = append(frames, 0x81, 0x80|byte(len(text)))
		frames = binary.BigEndian.AppendUint32(frames, 0) // a mask that changes nothing
		frames = append(frames, text...)
	}
	return frames
}

var framesBytes = len(maskedFrames(200))

// collector is a reactor.Handler that waits for all frames.
type collector struct {
	all []byte
	got chan<- []byte
}

func (h *collector) Open(*reactor.Conn)         {}
func (h *collector) Close(*reactor.Conn, error) {}

func (h *collector) Data(c *reactor.Conn, p []byte) int {
	if h.all = append(h.all, p...); len(h.all) >= framesBytes {
		h.got <- h.all
		h.all = nil
	}
	return len(p)
}

func attachHijacked(t *testing.T, rw http.ResponseWriter, got chan<- []byte) {
	nc, brw, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		t.Errorf("Hijack: %v", err)
		return
	}
	server, err := reactor.New(&collector{got: got}, reactor.Config{})
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { server.Close() })
	buffered, _ := brw.Reader.Peek(brw.Reader.Buffered())
	if _, err := server.Attach(nc, buffered, nil); err != nil {
		t.Errorf("Attach: %v", err)
	}
}

func upgradeHijacked(t *testing.T, rw http.ResponseWriter, got chan<- []byte) {
	nc, brw, err := wsadapter.NewUpgrade(rw).Hijack()
	if err != nil {
		t.Errorf("Hijack: %v", err)
		return
	}
	defer nc.Close()
	all := make([]byte, framesBytes)
	if n, err := io.ReadFull(brw, all); err != nil {
		t.Errorf("reading: %v after %d bytes", err, n)
	}
	got <- all
}
