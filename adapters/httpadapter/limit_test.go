package httpadapter

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// limitsMet are handlers whose http.MaxBytesReader reaches its limit, at each point of an answer.
var limitsMet = map[string]http.HandlerFunc{
	"in the request": func(rw http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(rw, r.Body, 4)
		answerBody(rw, r.Body)
	},
	"two of them": func(rw http.ResponseWriter, r *http.Request) {
		answerBody(rw, http.MaxBytesReader(rw, http.MaxBytesReader(rw, r.Body, 1000), 4))
	},
	"nothing allowed": func(rw http.ResponseWriter, r *http.Request) {
		answerBody(rw, http.MaxBytesReader(rw, r.Body, 0))
	},
	"by another goroutine": func(rw http.ResponseWriter, r *http.Request) {
		read := make(chan error)
		go func() {
			_, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, 4))
			read <- err
		}()
		fmt.Fprint(rw, <-read)
	},
	"after early hints": func(rw http.ResponseWriter, r *http.Request) {
		body := http.MaxBytesReader(rw, r.Body, 4)
		rw.WriteHeader(http.StatusEarlyHints)
		_, err := io.ReadAll(body)
		rw.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(rw, err)
	},
	"the header is looked at": func(rw http.ResponseWriter, r *http.Request) {
		rw.Header()["Vary"] = []string{"before"}
		_, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, 4))
		fmt.Fprint(rw, err, rw.Header())
	},
	"the header is changed": func(rw http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, 4))
		rw.Header().Set("Connection", "x")
		rw.Header().Set("Vary", "*")
		fmt.Fprint(rw, err)
	},
	"the header is empty again": func(rw http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, 4))
		rw.Header().Del("Connection")
		rw.WriteHeader(http.StatusRequestEntityTooLarge)
		fmt.Fprint(rw, err)
	},
	"after WriteHeader": func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusAccepted)
		answerBody(rw, http.MaxBytesReader(rw, r.Body, 4))
	},
	"after Flush": func(rw http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(rw)
		_ = control.EnableFullDuplex()
		_ = control.Flush()
		answerBody(rw, http.MaxBytesReader(rw, r.Body, 4))
	},
	"no answer": func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(http.MaxBytesReader(rw, r.Body, 4))
	},
	"with a length": func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", "2")
		_, _ = io.ReadAll(http.MaxBytesReader(rw, r.Body, 4))
		io.WriteString(rw, "no")
	},
}

// limitsUnmet are handlers whose reader does not reach its limit, and which leave part of the body
// unread.
var limitsUnmet = map[string]http.HandlerFunc{
	"all read": func(rw http.ResponseWriter, r *http.Request) {
		answerBody(rw, http.MaxBytesReader(rw, r.Body, limitTestBytes))
	},
	"by pieces": func(rw http.ResponseWriter, r *http.Request) {
		body, buf, n := http.MaxBytesReader(rw, r.Body, limitTestBytes), make([]byte, 100), 0
		for err := error(nil); err == nil; {
			var m int
			m, err = body.Read(buf[:7])
			n += m
		}
		fmt.Fprint(rw, n, rw.Header())
	},
	"without a reader": func(rw http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, 100)[:4])
		fmt.Fprint(rw, err)
	},
	"a LimitReader": func(rw http.ResponseWriter, r *http.Request) {
		answerBody(rw, io.LimitReader(r.Body, 4))
	},
}

// answerBody answers how much could be read, and why it was not more.
func answerBody(rw http.ResponseWriter, body io.Reader) {
	b, err := io.ReadAll(body)
	status := http.StatusOK
	if err != nil {
		status = http.StatusRequestEntityTooLarge
	}
	rw.WriteHeader(status)
	fmt.Fprintf(rw, "%d %v", len(b), err)
}

const limitTestBytes = 6000 // of the body: more than comes with the header

// If a limit is reached, the answer comes at once, while the rest of the body is still to come.
// Then the connection ends. The bytes are the same as net/http's.
func TestLimits(t *testing.T) {
	var wg sync.WaitGroup // in parallel, since net/http waits before it closes such a connection
	defer wg.Wait()
	for name, handler := range limitsMet {
		for _, sent := range []int{8, 5000, limitTestBytes} { // before awaiting the answer
			wg.Go(func() {
				got := onAllSides(t, fmt.Sprintf("%s, %d bytes", name, sent), func(w way) string {
					return playLimit(t, w, handler, sent)
				})
				if strings.Contains(got, "GET") {
					t.Errorf("%s, %d bytes: the connection is not closed: %s", name, sent, got)
				}
			})
		}
	}
	for name, handler := range limitsUnmet {
		wg.Go(func() {
			got := onAllSides(t, name, func(w way) string { return playLimit(t, w, handler, limitTestBytes) })
			if !strings.Contains(got, "GET") {
				t.Errorf("%s: the connection is closed: %s", name, got)
			}
		})
	}
}

// playLimit sends part of a body and reads the answer, and then sends the rest and another request.
// It returns everything that comes back, and the last state.
func playLimit(t *testing.T, w way, handler http.HandlerFunc, sent int) string {
	s := newSide(t, w, nil, func(_ *side, rw http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			handler(rw, r)
			return
		}
		io.WriteString(rw, r.Method)
	})
	nc := s.dial()
	defer nc.Close()
	body := strings.Repeat("b", limitTestBytes)
	io.WriteString(nc, post("/", limitTestBytes)+body[:sent])
	var answers bytes.Buffer
	br := bufio.NewReader(io.TeeReader(nc, &answers))
	for status := 100; status < 200; {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Errorf("%s: %v", w, err)
			return ""
		}
		status = resp.StatusCode
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	io.WriteString(nc, body[sent:]+"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n") // which fails if the server is done
	_, _ = io.Copy(io.Discard, br)
	return s.result(undated(answers.String()))
}

// A goroutine of the handler may continue with the request after the handler has returned, as with
// an http.TimeoutHandler. The server must no longer use anything that the goroutine may use, which
// the race detector checks.
func TestGoroutineBeyondHandler(t *testing.T) {
	returned := make(chan bool)
	ended := make(chan bool, 1)
	inner := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer func() { ended <- true }()
		<-r.Context().Done()
		for err := error(nil); err == nil; {
			_, err = r.Body.Read(make([]byte, 2, 3))
		}
		r.Body, r.Header, r.MultipartForm = http.NoBody, nil, nil
		<-returned
	})
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(rw, r.Body, 1000)
		http.TimeoutHandler(inner, time.Millisecond, "late").ServeHTTP(rw, r)
	}, nil)
	for _, text := range []string{post("/", 10) + "0123456789", post("/", 5000) + strings.Repeat("b", 5000)} {
		c := f.dial()
		c.send(text)
		if got := c.answer(); got != "late" {
			t.Errorf("got %q", got)
		}
		returned <- true
		testnet.Receive(t, "the goroutine's end", ended)
		c.Close()
	}
	f.wantCounted(2)
}
