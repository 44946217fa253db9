package migrate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestSameAnswers has a conversation with each server before its migration and after.
func TestSameAnswers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the libraries' servers need Linux")
	}
	for library, converse := range map[string]func(*testing.T, string){
		"gnet":    converseFrames,
		"nbio":    converseChat,
		"netpoll": converseSums,
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(library+"/"+when, func(t *testing.T) {
				t.Parallel()
				converse(t, start(t, "./"+library+"/"+when))
			})
		}
	}
}

// start builds and runs a server until the test ends, and returns the path of its unix socket.
func start(t *testing.T, folder string) string {
	dir := testnet.ShortTempDir(t)
	program, socket := filepath.Join(dir, "server"), filepath.Join(dir, "socket")
	if out, err := exec.Command("go", "build", "-o", program, folder).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", folder, err, out)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "unix", socket)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		testnet.Receive(t, "the server's end", ended)
		if t.Failed() {
			t.Logf("the server said:\n%s", &said)
		}
	})
	testnet.Eventually(t, "the server accepts connections", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server ended: %v", err)
		default:
		}
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return socket
}

// dial connects a client for as long as a test may take.
func dial(t *testing.T, socket string) *net.UnixConn {
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return c.(*net.UnixConn)
}

// expect reads want.
func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("got %.100q, %v, want %.100q", got[:n], err, want)
	}
}

// expectEnd reads the end of the stream, or a reset.
func expectEnd(t *testing.T, r io.Reader) {
	t.Helper()
	n, err := r.Read(make([]byte, 1))
	if n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %d bytes, %v, want the end", n, err)
	}
}

func frame(s string) string {
	return string([]byte{byte(len(s) >> 24), byte(len(s) >> 16), byte(len(s) >> 8), byte(len(s))}) + s
}

func converseFrames(t *testing.T, socket string) {
	c := dial(t, socket)
	long := strings.Repeat("abc", 100_000)
	for _, p := range strings.SplitAfter(frame("hello"), "") { // byte by byte
		io.WriteString(c, p)
	}
	expect(t, c, frame("HELLO"))
	io.WriteString(c, frame("a")+frame("")+frame("b")+frame("c")[:3])
	expect(t, c, frame("A")+frame("")+frame("B"))
	io.WriteString(c, frame("c")[3:])
	expect(t, c, frame("C"))
	io.WriteString(c, frame("?why"))
	expect(t, c, frame("?WHY"))
	io.WriteString(c, frame(long))
	expect(t, c, frame(strings.ToUpper(long)))
	io.WriteString(c, "\xff\xff\xff\xff")
	expectEnd(t, c)
}

func converseChat(t *testing.T, socket string) {
	clients := make([]*net.UnixConn, 5)
	readers := make([]*bufio.Reader, len(clients))
	for i := range clients {
		clients[i] = dial(t, socket)
		readers[i] = bufio.NewReader(clients[i])
		// It hears itself when it is in the list.
		fmt.Fprintf(clients[i], "I am number %d\n", i)
		for _, r := range readers[:i+1] {
			expect(t, r, fmt.Sprintf("I am number %d\n", i))
		}
	}
	for _, p := range []string{"one\ntw", "o", "\n", strings.Repeat("x", 4000) + "\n"} {
		io.WriteString(clients[2], p)
	}
	for _, r := range readers {
		expect(t, r, "one\ntwo\n"+strings.Repeat("x", 4000)+"\n")
	}
	go io.WriteString(clients[0], strings.Repeat("x", 10_000)) // a line that is too long
	expectEnd(t, readers[0])
	fmt.Fprintln(clients[1], "he is gone")
	for _, r := range readers[1:] {
		expect(t, r, "he is gone\n")
	}
}

func converseSums(t *testing.T, socket string) {
	c, other := dial(t, socket), dial(t, socket)
	for _, p := range strings.SplitAfter("add 3\n", "") { // byte by byte
		io.WriteString(c, p)
	}
	expect(t, c, "3\n")
	io.WriteString(c, "add 4\nadd -10\nsub 1\nadd 5") // the last is not a line yet
	expect(t, c, "7\n-3\nwhat?\n")
	io.WriteString(other, "add 1\n")
	expect(t, other, "1\n")
	io.WriteString(c, "\nquit\n")
	expect(t, c, "2\nbye\n")
	expectEnd(t, c)
}
