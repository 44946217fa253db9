package percore

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// children are the helper processes of this package's tests; files for one
// platform add theirs when they are initialized.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	var options []testnet.Option
	for name, run := range children {
		options = append(options, testnet.WithChild(name, run))
	}
	testnet.Main(m, options...)
}

// listen makes a listener with lc's options and closes it when the test ends.
func (lc *ListenConfig) listenIn(t testing.TB, network, address string) *Listener {
	t.Helper()
	ln, err := lc.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatalf("listening on %s %s: %v", network, address, err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*Listener)
}

// connect makes a connection through ln. Both ends are closed when the test
// ends.
func connect(t testing.TB, ln net.Listener) (server *Conn, client net.Conn) {
	t.Helper()
	s, c := testnet.Connect(t, ln)
	return s.(*Conn), c
}

// echoAll sends back whatever comes in, until the end.
func echoAll(c net.Conn) {
	defer c.Close()
	io.Copy(c, c)
}

// roundTrip sends text to an echoing peer and returns what comes back.
func roundTrip(c net.Conn, text string) (string, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	b := make([]byte, len(text))
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}

// fatalChild ends a helper process with a message that its parent's Wait
// returns.
func fatalChild(what string, err error) {
	os.Stderr.WriteString(what + ": " + err.Error() + "\n")
	os.Exit(1)
}
