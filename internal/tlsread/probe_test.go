package tlsread

import (
	"crypto/tls"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestProbe(t *testing.T) {
	testnet.NoLeaks(t)
	if err := Probe(); err != nil {
		t.Errorf("crypto/tls (%s) does not read as percore relies on: %v", runtime.Version(), err)
	}
}

// The proof detects a crypto/tls that ends a connection which has run dry.
func TestChangedTLS(t *testing.T) {
	identity, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		err := playRecords(identity, version, errors.New("for good"))
		if want := "nothing behind a part"; err == nil || !strings.Contains(err.Error(), "for good") {
			t.Errorf("got %v, want a difference at %q", err, want)
		}
	}
}

// Read stops where p is full, where the number of its reads is reached, where nothing is left, and at
// the end.
func TestRead(t *testing.T) {
	identity, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	r, err := shakeRecords(identity, tls.VersionTLS13, loop.ErrWouldWait)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		r.ofServer.rest = append(r.ofServer.rest, r.make("four")...)
	}
	p := make([]byte, 100)
	for _, want := range []struct {
		room, reads int
		text        string
		dry         bool
	}{
		{6, 10, "fourfo", false}, {100, 2, "urfour", false}, {100, 10, "four", true}, {100, 10, "", true},
	} {
		n, dry, err := Read(r.server, p[:want.room], want.reads)
		if string(p[:n]) != want.text || dry != want.dry || err != nil {
			t.Errorf("got %q, %t, %v, want %q, %t", p[:n], dry, err, want.text, want.dry)
		}
	}
	r.ofServer.rest = append(r.make("last"), r.make("")...)
	for _, text := range []string{"last", ""} {
		if n, dry, err := Read(r.server, p, 10); string(p[:n]) != text || dry || err != io.EOF {
			t.Errorf("got %q, %t, %v, want %q and the end", p[:n], dry, err, text)
		}
	}
}

func TestMethods(t *testing.T) {
	testnet.CheckMethods[*recordsStream](t, testnet.MethodTable{
		Own:      "Read Write",
		Promoted: map[string]string{"after the handshake nothing uses them": "Close LocalAddr RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline"},
	})
}

func BenchmarkProbe(b *testing.B) {
	identity, err := newIdentity()
	for b.Loop() {
		err = errors.Join(err, playRecords(identity, tls.VersionTLS13, loop.ErrWouldWait))
	}
	if err != nil {
		b.Fatal(err)
	}
}
