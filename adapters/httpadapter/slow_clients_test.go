package httpadapter

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// largeAnswer is more bytes than the kernel's buffers of both sides take.
const largeAnswer = 24 << 20

// TestSlowClients: clients that don't read move two metrics up, whichever way their answer is sent, and
// down to 0 when they read on or go. Where net/http serves, nothing is counted.
func TestSlowClients(t *testing.T) {
	serverTLS, clientTLS := testnet.TLS(t)
	file := testnet.TempFile(t, make([]byte, largeAnswer))
	write := func(rw http.ResponseWriter, r *http.Request) { _, _ = rw.Write(make([]byte, largeAnswer)) }
	for _, arm := range []struct {
		name    string
		handler http.HandlerFunc
		config  *tls.Config
	}{
		{"written", write, nil},
		{"over TLS", write, serverTLS},
		{"a file", func(rw http.ResponseWriter, r *http.Request) {
			f, err := os.Open(file.Name())
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			_, _ = io.Copy(rw, f)
		}, nil},
		{"detached", func(rw http.ResponseWriter, r *http.Request) {
			err := Detach(rw, r, func(s *Answer) {
				s.SetLimit(2*largeAnswer, false)
				_, _ = s.Write(make([]byte, largeAnswer))
				_ = s.Close()
			})
			if err != nil {
				t.Error(err)
			}
		}, nil},
	} {
		t.Run(arm.name, func(t *testing.T) {
			f := start(t, arm.handler, func(f *fixture) {
				if arm.config != nil {
					f.srv.TLSConfig, f.client = arm.config.Clone(), clientTLS
				}
			})
			const count = 4
			var clients [count]*client
			for i := range clients {
				clients[i] = f.dial()
				clients[i].send(request("/"))
			}
			want := float64(0)
			if canPark {
				want = count
			}
			await := func(want float64) {
				t.Helper()
				testnet.Eventually(t, "as many stalled and slow answers as clients that don't read", func() bool {
					slow := metric("slow_answers", "") // after a second, which once is enough
					return metric("stalled_answers", "") == want && (slow == want || slow >= 0 && arm.name != "written")
				})
			}
			await(want)
			for i, c := range clients {
				if i%2 == 0 {
					c.Close()
				} else if _, err := io.Copy(io.Discard, io.LimitReader(c.br, largeAnswer)); err != nil {
					t.Error(err)
				}
			}
			await(0)
		})
	}
}

// TestSlowClientHijacks: what is written to a hijacked connection is no answer.
func TestSlowClientHijacks(t *testing.T) {
	needParking(t)
	blocked := make(chan bool)
	f := start(t, func(rw http.ResponseWriter, r *http.Request) {
		c, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer close(blocked)
		defer c.Close()
		testnet.GoBlocked(t, "Write", func() { _, _ = c.Write(make([]byte, largeAnswer)) })
		if n := metric("stalled_answers", ""); n != 0 {
			t.Errorf("got %v stalled answers, want 0", n)
		}
	}, nil)
	f.dial().send(request("/"))
	testnet.Receive(t, "the handler", blocked)
}
