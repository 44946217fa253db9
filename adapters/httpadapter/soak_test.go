package httpadapter

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

// TestHTTP1Soak runs many clients that do everything that a client may do, all at once. They send plain
// requests, pipelines, requests for net/http, bytes one by one, and upgrades, and end in every way. Each
// answer names its request, so a byte of another connection or request can't go unnoticed.
func TestHTTP1Soak(t *testing.T) {
	soak(t, false, func(bool) {})
}

// clientsVariable says how many clients soak has:
//
//	PERCORE_TEST_CLIENTS=2000 go test -run TestHTTP1Soak ./adapters/httpadapter
const clientsVariable = "PERCORE_TEST_CLIENTS"

// soakSize returns the number of clients, and how often each of them acts.
func soakSize(t *testing.T) (clients, rounds int) {
	if text := os.Getenv(clientsVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s: want the number of clients", clientsVariable, text)
		}
		return n, 25
	}
	if testing.Short() {
		return 60, 6
	}
	return 400, 25
}

// soak plays each client's actions. It calls begin before its clients dial, and after they have. If
// faulty is set, connections may fail at any time.
func soak(t *testing.T, faulty bool, begin func(dialed bool)) {
	clients, rounds := soakSize(t)
	buffers := buffersAtRest(t)
	f := startOurs(t, serveSoak, nil)
	begin(false)
	var all []*soaker
	patience := testnet.HangTimeout * time.Duration(1+clients/400)
	for i := range clients {
		rng := rand.New(rand.NewPCG(uint64(i), 0))
		all = append(all, &soaker{client: f.dial(), id: i, rng: rng, faulty: faulty, patience: patience})
	}
	begin(true)
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			defer s.Close()
			for range rounds {
				if !s.act() {
					return
				}
			}
		})
	}
	wg.Wait()
	testnet.Eventually(t, "all connections being given up", func() bool { return f.server.Stats().Conns == 0 })
	testnet.Eventually(t, "the workers' end", func() bool { return workersLeft() == 0 })
	testnet.Eventually(t, "all buffers being given back", func() bool { return pool.ReadStats().BuffersInUse == buffers })
	f.wantClosedOnce()
	t.Logf("%+v", f.server.Stats())
}

// wantClosedOnce checks that the end of each connection was reported to the hook once, as its last
// state.
func (f *fixture) wantClosedOnce() {
	f.Helper()
	testnet.Eventually(f, "the ends being told", func() bool {
		for _, states := range f.snapshot() {
			if last := states[len(states)-1]; last != "closed" && last != "hijacked" {
				return false
			}
		}
		return true
	})
	for _, states := range f.snapshot() {
		text := strings.Join(states, " ")
		if strings.Count(text, "new") != 1 || strings.Count(text, "closed")+strings.Count(text, "hijacked") != 1 {
			f.Errorf("got the states %q", text)
		}
	}
}

// serveSoak answers with the request's path and body, repeated as often as the path says, in
// several ways.
func serveSoak(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client has left
	}
	if r.URL.Path == "/upgrade" {
		nc, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		go func() {
			defer nc.Close()
			_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_, _ = io.Copy(nc, buffered)
		}()
		return
	}
	answer := r.RequestURI + " " + string(body) + "\n"
	switch r.URL.Path {
	case "/large":
		answer = strings.Repeat(answer, largeRepeat(answer))
	case "/flush":
		for piece := range slices.Chunk([]byte(answer), 1+len(answer)/500) {
			_, _ = rw.Write(piece)
			rw.(http.Flusher).Flush()
		}
		return
	case "/wait":
		time.Sleep(time.Millisecond)
	case "/gone":
		<-r.Context().Done()
	}
	_, _ = io.WriteString(rw, answer)
}

// largeRepeat returns how many repetitions of text make a large answer.
func largeRepeat(text string) int { return 1 + 30_000/len(text) }

// soaker is a client of the soak test.
type soaker struct {
	*client
	id, n  int // n counts its requests
	rng    *rand.Rand
	faulty bool // the connection may fail at any time

	patience time.Duration // how long an answer may take
}

// lost reports a connection failure, unless connections may fail.
func (s *soaker) lost(err error, format string, args ...any) {
	if !s.faulty || isTimeout(err) {
		s.t.Errorf("client %d: %v, want %s", s.id, err, fmt.Sprintf(format, args...))
	}
}

// message is a request and the body of its answer.
type message struct{ text, want string }

// request makes a request for path, of a kind of its own.
func (s *soaker) request(path string) message {
	s.n++
	uri := fmt.Sprintf("%s?%d.%d", path, s.id, s.n)
	body := ""
	head := " HTTP/1.1\r\nHost: test\r\n"
	text := ""
	switch s.rng.IntN(8) {
	case 0:
		body = strings.Repeat("c", 1+s.rng.IntN(20))
		text = "POST " + uri + head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	case 1: // near the size of the buffer
		size := turnBytes - 2 + s.rng.IntN(5)
		if s.rng.IntN(4) == 0 {
			size = plainBytesMost - 2 + s.rng.IntN(5)
		}
		text = "GET " + uri + head + "X: "
		text += strings.Repeat("x", size-len(text)-4) + "\r\n\r\n"
	case 2:
		size := turnBytes - 2 + s.rng.IntN(5)
		text = "POST " + uri + head + "Content-Length: "
		n := size - len(text) - len("1234\r\n\r\n")
		body = strings.Repeat("b", n)
		text += fmt.Sprintf("%d\r\n\r\n%s", n, body)
	case 3:
		body = strings.Repeat("l", s.rng.IntN(20_000))
		text = "POST " + uri + head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	default:
		text = "GET " + uri + head + "\r\n"
	}
	want := uri + " " + body + "\n"
	if path == "/large" {
		want = strings.Repeat(want, largeRepeat(want))
	}
	return message{text, want}
}

// act does one thing, and reports whether the connection stays open.
func (s *soaker) act() bool {
	_ = s.SetDeadline(time.Now().Add(s.patience))
	paths := []string{"/", "/", "/", "/large", "/flush", "/wait"}
	path := paths[s.rng.IntN(len(paths))]
	tcp := s.tcp()
	switch s.rng.IntN(40) {
	case 0, 1, 2, 3: // a pipeline, cut anywhere
		var text strings.Builder
		var all []message
		for range 1 + s.rng.IntN(30) {
			m := s.request(paths[s.rng.IntN(3)])
			all = append(all, m)
			text.WriteString(m.text)
		}
		wrote := make(chan bool)
		go func() {
			s.pieces(text.String(), 4)
			close(wrote)
		}()
		ok := true
		for _, m := range all {
			ok = ok && s.check(m)
		}
		<-wrote
		return ok
	case 4: // byte by byte
		m := message{fmt.Sprintf("GET /?%d.b HTTP/1.1\r\nHost: test\r\n\r\n", s.id), fmt.Sprintf("/?%d.b \n", s.id)}
		for _, b := range []byte(m.text) {
			_, _ = s.Write([]byte{b})
			runtime.Gosched()
		}
		return s.check(m)
	case 5: // the end, half
		m := s.request(path)
		s.pieces(m.text, 1)
		s.closeWrite()
		if s.check(m) {
			s.end()
		}
		return false
	case 6: // the end, in the middle of anything
		m := s.request(path)
		s.pieces(m.text[:s.rng.IntN(len(m.text))], 2)
		if s.rng.IntN(2) == 0 {
			_ = tcp.SetLinger(0)
		}
		return false
	case 7: // the end, during the handler
		s.pieces(s.request("/gone").text, 1)
		if s.rng.IntN(2) == 0 {
			_ = tcp.SetLinger(0)
		}
		return false
	case 8: // the last request, followed by bytes
		uri := fmt.Sprintf("/?%d.last", s.id)
		s.pieces("GET "+uri+" HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", 1)
		if s.check(message{"", uri + " \n"}) {
			s.end()
		}
		return false
	case 9:
		s.upgrade()
		return false
	case 10, 11:
		time.Sleep(time.Duration(s.rng.IntN(3000)) * time.Microsecond) // perhaps parked
		return true
	default:
		m := s.request(path)
		s.pieces(m.text, 1+s.rng.IntN(3))
		return s.check(m)
	}
}

// pieces sends text in up to n pieces. Failures show when answers are read.
func (s *soaker) pieces(text string, n int) {
	for range n - 1 {
		if len(text) == 0 {
			return
		}
		cut := rand.IntN(len(text))
		_, _ = io.WriteString(s.Conn, text[:cut])
		text = text[cut:]
		time.Sleep(rand.N(300 * time.Microsecond))
	}
	_, _ = io.WriteString(s.Conn, text)
}

// check reads the answer to m and compares it.
func (s *soaker) check(m message) bool {
	_ = s.SetDeadline(time.Now().Add(s.patience)) // for each request of a pipeline
	resp, err := http.ReadResponse(s.br, nil)
	if err != nil {
		s.lost(err, "the answer %.60q to %.60q", m.want, m.text)
		return false
	}
	if s.faulty && resp.StatusCode == http.StatusBadRequest {
		return false // net/http takes a line cut off by an error for a line, if it can read on
	}
	got, err := io.ReadAll(resp.Body)
	uri, _, _ := strings.Cut(m.want, " ")
	if bodiless := uri + " \n"; s.faulty && strings.HasPrefix(string(got), bodiless) && !strings.HasPrefix(m.want, bodiless) {
		return false // likewise, if it was the Host line: its end is an empty line then
	}
	if err != nil {
		s.lost(err, "the rest of %.60q behind %d bytes", m.want, len(got))
	}
	if string(got) != m.want && (err == nil || !strings.HasPrefix(m.want, string(got))) {
		s.t.Errorf("client %d: got %.60q, want %.60q", s.id, got, m.want)
		return false
	}
	return err == nil
}

// end reads to the end of the stream.
func (s *soaker) end() {
	if rest, err := io.ReadAll(s.br); len(rest) > 0 {
		s.t.Errorf("client %d: got %.60q, want the end", s.id, rest)
	} else if err != nil {
		s.lost(err, "the end")
	}
}

// upgrade hijacks the connection for an echo, with bytes that arrive before the answer.
func (s *soaker) upgrade() {
	head := "GET /upgrade HTTP/1.1\r\nHost: test\r\n"
	if s.rng.IntN(2) == 0 {
		head += "Connection: Upgrade\r\nUpgrade: echo\r\n" // served by net/http
	}
	text := strings.Repeat(fmt.Sprintf("echo of %d;", s.id), 1+s.rng.IntN(1000))
	wrote := make(chan bool)
	go func() {
		s.pieces(head+"\r\n"+text, 4)
		s.closeWrite()
		close(wrote)
	}()
	defer func() { <-wrote }()
	line, err := s.br.ReadString('\n')
	if _, discardErr := s.br.Discard(len("\r\n")); err != nil || discardErr != nil {
		s.lost(errors.Join(err, discardErr), "an upgrade")
		return
	}
	if !strings.Contains(line, " 101 ") {
		s.t.Errorf("client %d: got %q, want an upgrade", s.id, line)
		return
	}
	got, err := io.ReadAll(s.br)
	switch {
	case string(got) == text:
	case !strings.HasPrefix(text, string(got)):
		s.t.Errorf("client %d: got a wrong echo of %d bytes", s.id, len(got))
	case err == nil:
		err = io.ErrUnexpectedEOF
		fallthrough
	default:
		s.lost(err, "an echo of %d bytes behind %d", len(text), len(got))
	}
}
