//go:build unix

package debug

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// browserCheck is what the browser runs on the page. It returns what is wrong with its looks, a line for
// each.
//
//go:embed testdata/check.js
var browserCheck string

// unfold shows all charts and tables, until the next refresh.
const unfold = `
	for (const e of document.querySelectorAll(".charts, figure")) e.hidden = false;
	for (const e of document.querySelectorAll("details")) e.open = true`

// TestBrowser: in a real browser the page works, and looks right in light and dark, on a laptop and on a
// phone, with and without something to complain of. With -artifacts the pictures are kept.
func TestBrowser(t *testing.T) {
	exe, err := exec.LookPath("chromium")
	switch {
	case err != nil && os.Getenv("PERCORE_TEST_FULL") != "":
		t.Fatal("PERCORE_TEST_FULL is set, and Chromium is missing: install the package chromium (Debian), and put it into PATH")
	case err != nil:
		t.Skip("needs Chromium: install the package chromium (Debian), and put it into PATH")
	case testing.Short() || race.Enabled:
		t.Skip("takes ten seconds, most of them Chromium's: run it without -short and -race")
	}
	testnet.NoLeaks(t)
	traffic := startTraffic(t)
	page := httptest.NewServer(Handler())
	defer page.Close()
	b := startBrowser(t, exe)
	for _, c := range []struct {
		name          string
		width, height int
		scheme        string
		slow          int // clients that don't read: more than half of those that are served, so that is wrong
	}{
		{"laptop-light", 1366, 768, "light", 0},
		{"laptop-dark", 1366, 768, "dark", 12},
		{"phone-light", 390, 844, "light", 12},
		{"phone-dark", 390, 844, "dark", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			hangUp := traffic.addSlow(t, c.slow)
			defer hangUp()
			b.t = t
			b.open(page.URL, c.width, c.height, c.scheme)
			b.await("the page is live", `document.getElementById("status").textContent === "live"`)
			complains := c.slow > 0 && len(percore.ReadStats().Listeners) > 0 // package net doesn't tell
			b.await("the verdict", fmt.Sprintf(`!!document.querySelector("#verdict li a[href$='#slow-clients']") === %t`, complains))
			b.await("a chart with a line", `document.querySelectorAll(".line[d*=L]").length > 5`)
			if problems := b.evaluate(fmt.Sprintf("%s(%d, %d)", browserCheck, c.width, c.height)); problems != "" {
				t.Errorf("the page looks wrong:\n%v", problems)
			}
			if problems := b.evaluate(fmt.Sprintf("%s; %s(%d, 1e9)", unfold, browserCheck, c.width)); problems != "" {
				t.Errorf("the page looks wrong with all that is folded:\n%v", problems)
			}
			b.checkFolds()
			picture := b.takePicture()
			file := filepath.Join(t.ArtifactDir(), c.name+".png")
			if err := os.WriteFile(file, picture, 0o666); err != nil {
				t.Fatal(err)
			}
			if image, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || image.Width != c.width {
				t.Errorf("got a picture that is %d wide, and %v, want %d", image.Width, err, c.width)
			}
			for _, message := range b.takeComplaints() {
				t.Errorf("the browser's console says: %s", message)
			}
		})
	}
}

// checkFolds: what the reader unfolds stays so when the page refreshes.
func (b *browser) checkFolds() {
	b.t.Helper()
	for _, open := range []bool{true, false} {
		b.evaluate(fmt.Sprintf(`globalThis.old = Array.from(document.querySelectorAll("details[data-idle]")); for (const e of old) e.open = %t; ""`, open))
		b.await("a refresh", `!old[0].isConnected`)
		if is := b.evaluate(`document.getElementById(old[0].id).open`); is != open {
			b.t.Errorf("after a refresh open is %v, want %t, as the reader has left it", is, open)
		}
	}
}

// traffic is a server with clients.
type traffic struct{ ln net.Listener }

// startTraffic runs a server, and a client that makes requests, until the test ends.
func startTraffic(t *testing.T) *traffic {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := httpadapter.Wrap(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 24<<20))
		}
	})})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	testnet.KeepAlive(t, testnet.Dial(t, ln))("/") // it waits from now on
	c := testnet.Dial(t, ln)
	requested := make(chan error, 1)
	var stop atomic.Bool
	go func() {
		var err error
		for r := bufio.NewReader(c); err == nil && !stop.Load(); time.Sleep(time.Millisecond) { // some load, not all
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			_, err = http.ReadResponse(r, nil)
		}
		requested <- err
	}()
	t.Cleanup(func() {
		stop.Store(true)
		if err := testnet.Receive(t, "a client", requested); err != nil {
			t.Error(err)
		}
		srv.Close()
		testnet.Receive(t, "Serve", served)
	})
	return &traffic{ln}
}

// addSlow adds clients that don't read.
func (s *traffic) addSlow(t *testing.T, n int) (hangUp func()) {
	var clients []net.Conn
	for range n {
		c := testnet.Dial(t, s.ln)
		fmt.Fprint(c, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
		clients = append(clients, c)
	}
	return func() {
		for _, c := range clients {
			c.Close()
		}
		slow := of("http stalled_answers")
		testnet.Eventually(t, "no slow clients", func() bool { return slow(&reading{Stats: percore.ReadStats()}) == 0 })
	}
}

// A browser is one tab of a Chromium without a window. It is driven by the DevTools protocol, over two
// pipes: https://chromedevtools.github.io/devtools-protocol.
type browser struct {
	t       *testing.T
	to      io.Writer
	answers chan message
	session string
	last    int

	mu         sync.Mutex
	complaints []string // of the console; guarded by mu
}

// message is an answer, or an event.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// startBrowser starts Chromium, which ends with the test.
func startBrowser(t *testing.T, exe string) *browser {
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{theirs, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	theirOut.Close()
	b := &browser{t: t, to: ours, answers: make(chan message, 100)}
	read := make(chan bool)
	go func() {
		defer close(read)
		b.receive(bufio.NewReader(from))
	}()
	t.Cleanup(func() {
		ours.Close() // it ends, and its processes with it, which write to the directory until then
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(testnet.HangTimeout):
			t.Error("Chromium hangs as it ends")
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		<-read
		from.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", &target, map[string]any{"url": "about:blank"})
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", &attached, map[string]any{"targetId": target.TargetID, "flatten": true})
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// receive takes the browser's messages until it ends.
func (b *browser) receive(r *bufio.Reader) {
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			close(b.answers)
			return
		}
		var m message
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			continue
		}
		switch m.Method {
		case "":
			b.answers <- m
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
			b.mu.Lock()
			b.complaints = append(b.complaints, string(m.Params))
			b.mu.Unlock()
		}
	}
}

func (b *browser) takeComplaints() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, b.complaints = b.complaints, nil
	return all
}

// call calls a method of the protocol. Of the answer it returns the result, unless that is nil.
func (b *browser) call(method string, result any, params map[string]any) {
	b.t.Helper()
	b.last++
	text, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		text, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	m := testnet.Receive(b.t, method, b.answers)
	if m.ID != b.last || m.Error != nil {
		b.t.Fatalf("%s: got the answer %d to %d, error %s", method, m.ID, b.last, m.Error)
	}
	if result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
	}
}

// open opens a page.
func (b *browser) open(url string, width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", nil, map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
	b.call("Emulation.setEmulatedMedia", nil, map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
	b.call("Page.navigate", nil, map[string]any{"url": url})
}

// evaluate returns the value of an expression on the page.
func (b *browser) evaluate(expression string) any {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", &answer, map[string]any{"expression": expression, "returnByValue": true})
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%.60s: %s", strings.TrimSpace(expression), answer.ExceptionDetails)
	}
	return answer.Result.Value
}

// await waits until an expression is true. While the page is loaded it may fail.
func (b *browser) await(what, expression string) {
	b.t.Helper()
	testnet.Eventually(b.t, what, func() bool {
		return b.evaluate("(() => { try { return "+expression+" } catch { return false } })()") == true
	})
}

// takePicture returns a picture of the whole page.
func (b *browser) takePicture() []byte {
	b.t.Helper()
	var picture struct{ Data string }
	b.call("Page.captureScreenshot", &picture, map[string]any{"captureBeyondViewport": true})
	p, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}
