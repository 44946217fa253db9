package httpadapter

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

// post is the header of a request with a body of n bytes.
func post(path string, n int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n", path, n)
}

// A handler that waits for the rest of the body holds a worker but no buffer.
func TestBodyHoldsNothing(t *testing.T) {
	buffers := buffersAtRest(t)
	for _, size := range []int{1, 4096} { // of each Read
		reading := make(chan bool, 1)
		f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
			p := make([]byte, size)
			for total := 0; ; {
				if total == 4 || total == 10 {
					reading <- true
				}
				n, err := r.Body.Read(p)
				if total += n; err != nil {
					fmt.Fprint(rw, total, err)
					return
				}
			}
		}, nil)
		c := f.dial()
		noBuffers := func() {
			testnet.Receive(t, "the handler", reading)
			testnet.Eventually(t, "the buffer being given back", func() bool { return pool.ReadStats().BuffersInUse == buffers })
		}
		c.send(post("/", 9000) + "body")
		noBuffers()
		c.send("behind")
		noBuffers()
		c.send(strings.Repeat("x", 9000-10))
		if got := c.answer(); got != "9000 EOF" {
			t.Errorf("got %q", got)
		}
		f.wantCounted(1)
		c.Close()
	}
}

// A handler that copies a body to a file holds no buffer, either, while it waits.
func TestCopyHoldsNothing(t *testing.T) {
	buffers := buffersAtRest(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(file, r.Body)
		fmt.Fprint(rw, n, err)
	}, nil)
	c := f.dial()
	c.send(post("/", 300_000) + "body")
	for sent := int64(4); sent < 300_000; sent += 70_000 {
		if sent > 4 {
			c.send(strings.Repeat("x", 70_000))
		}
		testnet.Eventually(t, "the copy of what was sent", func() bool {
			info, err := file.Stat()
			return err == nil && info.Size() == sent && pool.ReadStats().BuffersInUse == buffers
		})
	}
	c.closeWrite()
	if got := c.answer(); !strings.HasSuffix(got, "unexpected EOF") {
		t.Errorf("got %q", got)
	}
	f.wantCounted(1)
}

// Old clients send an empty line after a body. It must not make the kernel reset the connection
// after an answer that closes it.
func TestBytesBehindBody(t *testing.T) {
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		rw.Header().Set("Connection", "close")
		io.WriteString(rw, "thanks")
	}, nil)
	for _, size := range []int{100, 5000} { // in the buffer of the header, and after it
		for range 20 {
			c := f.dial()
			c.send(post("/", size) + strings.Repeat("b", size) + "\r\n")
			if got := c.answer(); got != "thanks" {
				t.Errorf("%d bytes: got %q", size, got)
			}
			c.awaitEOF()
		}
	}
	f.wantCounted(40)
}

// The server looks for the client's end once the body has been read, and finds it then. Before
// that, Read finds it.
func TestBodyContext(t *testing.T) {
	for _, part := range []string{"body", "bo"} {
		waiting, ended := make(chan bool, 1), make(chan error, 1)
		f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
			waiting <- true
			_, err := io.ReadAll(r.Body)
			waiting <- true
			<-r.Context().Done()
			ended <- err
		}, nil)
		c := f.dial()
		c.send(post("/", 4))
		testnet.Receive(t, "the handler", waiting)
		c.send(part)
		if part == "body" {
			testnet.Receive(t, "the body", waiting)
		}
		c.Close()
		want := error(nil)
		if part != "body" {
			testnet.Receive(t, "the body's end", waiting)
			want = io.ErrUnexpectedEOF
		}
		if err := testnet.Receive(t, "the context's end", ended); err != want {
			t.Errorf("%s: got %v, want %v", part, err, want)
		}
	}
}

// The deadline of a body does not apply to the wait behind it. (TestSlowRequests has bodies that take
// too long.)
func TestBodyTimeoutEnds(t *testing.T) {
	wantOfTimeout(t, "body", 50*time.Millisecond, func(d time.Duration) string {
		f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			time.Sleep(2 * d)
			rw.Write(body)
		}, func(f *fixture) { f.srv.ReadTimeout, f.srv.IdleTimeout = d, time.Hour })
		c := f.dial()
		for range 2 {
			io.WriteString(c, post("/", 4)+"bo")
			io.WriteString(c, "dy")
			resp, err := http.ReadResponse(c.br, nil)
			if err != nil {
				return err.Error()
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "body" {
				return fmt.Sprintf("%q, %v", body, err)
			}
		}
		f.awaitParked(1)
		f.wantCounted(2)
		return "body"
	})
}

// awaitReader waits until another goroutine is in a Read of a body.
func awaitReader(t *testing.T) {
	buf := make([]byte, 1<<20)
	testnet.Eventually(t, "the body being read", func() bool {
		return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "h1.(*requestBody).readSeen(")
	})
}

// Another goroutine may still be reading when the handler has returned. Its Read fails, and gets no
// byte of the next request.
func TestBodyReadBeyondHandler(t *testing.T) {
	ended := make(chan error, 1)
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			return
		}
		rc := http.NewResponseController(rw)
		if r.URL.Path == "/hijack" {
			go func() {
				_, err := io.Copy(io.Discard, r.Body)
				ended <- err
			}()
			awaitReader(t)
			nc, buffered, err := rc.Hijack()
			if err != nil {
				t.Errorf("Hijack: %v", err)
				return
			}
			defer nc.Close()
			io.Copy(nc, buffered)
			return
		}
		_ = rc.EnableFullDuplex() // otherwise the answer waits for the body
		if _, err := io.ReadFull(r.Body, make([]byte, len("body"))); err != nil {
			t.Error(err)
		}
		go func() {
			_, err := io.Copy(io.Discard, r.Body)
			ended <- err
		}()
		awaitReader(t)
	}, nil)
	c := f.dial()
	c.get("/")
	c.send(post("/reads", 10) + "body")
	c.answer()
	if err := testnet.Receive(t, "the reader's end", ended); err == nil {
		t.Error("got no error from a Read of a body whose handler has returned")
	}
	c.send("behind" + request("/"))
	c.answer()
	f.wantCounted(3)
	c.send(post("/hijack", 10))
	if err := testnet.Receive(t, "the reader's end", ended); err == nil {
		t.Error("got no error from a Read of a body whose connection was hijacked")
	}
	c.send("bytes of the hijacker's")
	c.closeWrite()
	if got, err := io.ReadAll(c.br); string(got) != "bytes of the hijacker's" || err != nil {
		t.Errorf("got %q, %v, want an echo", got, err)
	}
}

// If a handler leaves the rest of a body unread, the rest decides what happens to the connection, as
// with net/http. See acts for what the handlers do.
func TestBodyLeft(t *testing.T) {
	needParking(t)
	var all sync.WaitGroup
	defer all.Wait()
	for _, todo := range []string{"", "R", "F", "Gw", "FF", "cF", "I", "c", "f", "x", "k", "M", "Zw", "Lw"} {
		pair := newPair(t, withAdapter, nil)
		all.Go(func() {
			for _, size := range []int{1, 5000, 100_000, discardMax - 1, discardMax + 100_000} { // a copy that fails has read up to 64 KiB
				text := doing(todo, fmt.Sprint("Content-Length: ", size)) + strings.Repeat("b", size) +
					"GET " + lastTarget + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
				pair.play(t, &connectionScript{pieces: []piece{{text: text[:60]}, {text: text[60:80]}, {text: text[80:]}}, end: readsOn})
			}
		})
	}
}

// A deadline that the adapter doesn't know about ends no wait, and keeps nothing busy.
func TestForeignDeadline(t *testing.T) {
	f := startOurs(t, echoPath, nil)
	c := f.dial()
	c.get("/")
	f.awaitParked(1)
	_ = f.conn().Conn.SetReadDeadline(monotime.LongAgo)
	if got := c.get("/next"); got != "/next" {
		t.Errorf("got %q", got)
	}
}
