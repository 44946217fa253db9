package tlsfiles

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// fixture is a folder with the files of a server.
type fixture struct {
	t     *testing.T
	paths Paths
	log   testnet.Log
	made  int // certificates
	wrote int // files of secrets
}

func newFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	f := &fixture{t: t, paths: Paths{
		Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Secrets: filepath.Join(dir, "secrets"),
	}}
	f.secrets("a")
	f.renew()
	return f
}

func (f *fixture) open(state []byte) *Files {
	f.t.Helper()
	all, err := Open(f.paths, slog.New(slog.NewTextHandler(&f.log, nil)))
	if err != nil {
		f.t.Fatal(err)
	}
	all.Restore(state)
	return all
}

// write replaces a file, as programs that renew certificates do.
func (f *fixture) write(path, text string) {
	f.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		f.t.Fatal(err)
	}
}

// secrets writes the file of secrets, one for each letter. No two files have the same size: a file may
// have the inode of the last but one, and a file system's clock ticks only hundreds of times a second.
func (f *fixture) secrets(letters string) {
	f.wrote++
	text := "# of this test" + strings.Repeat(".", f.wrote) + "\n\n"
	for _, c := range letters {
		text += base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(c)}, 32)) + "\n"
	}
	f.write(f.paths.Secrets, text)
}

// pair makes a certificate, whose name is its number, and its key.
func (f *fixture) pair() (cert, key string) {
	f.t.Helper()
	f.made++
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(f.made)), Subject: pkix.Name{CommonName: fmt.Sprint(f.made)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		f.t.Fatal(err)
	}
	p, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		f.t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", p)
}

func (f *fixture) renew() {
	cert, key := f.pair()
	f.write(f.paths.Cert, cert)
	f.write(f.paths.Key, key)
}

// client is a client with a session, which any server may have made.
type client struct{ config *tls.Config }

func newClient(version uint16) *client {
	return &client{&tls.Config{
		InsecureSkipVerify: true, ServerName: "percore", MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}}
}

// connect makes a connection, reads a byte, with which a ticket of TLS 1.3 comes, and returns the
// connection's state.
func (c *client) connect(t *testing.T, config *tls.Config) tls.ConnectionState {
	t.Helper()
	far, near := testnet.Pair(t, net.Listen, testnet.TCP4) // at both ends writes may be under way: no net.Pipe
	var serving sync.WaitGroup
	defer serving.Wait()
	defer near.Close()
	serving.Go(func() {
		defer far.Close()
		s := tls.Server(far, config)
		if _, err := s.Write([]byte{0}); err == nil {
			_, _ = io.Copy(io.Discard, s)
		}
	})
	s := tls.Client(near, c.config)
	if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
		t.Fatalf("a connection: %v", err)
	}
	return s.ConnectionState()
}

// requireResumed compares whether the client's session is accepted.
func (c *client) requireResumed(t *testing.T, config *tls.Config, want bool) {
	t.Helper()
	if got := c.connect(t, config).DidResume; got != want {
		t.Errorf("got resumed %t, want %t", got, want)
	}
}

// Sessions are resumed at another server with the same file, and at a successor without one; not at a
// stranger.
func TestTickets(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			f := newFixture(t)
			a, b := f.open(nil), f.open(nil)
			full, resumed := counters.full.Load(), counters.resumed.Load()
			c := newClient(version)
			c.requireResumed(t, a.Config(), false)
			c.requireResumed(t, b.Config().Clone(), true)
			if full, resumed = counters.full.Load()-full, counters.resumed.Load()-resumed; full != 1 || resumed != 1 {
				t.Errorf("got %d full handshakes and %d resumed, want one of each", full, resumed)
			}
			if state := a.State(); state != nil {
				t.Errorf("got a state of %d bytes, want none: it is in the file", len(state))
			}

			f.paths.Secrets = ""
			p, stranger := f.open(nil), f.open(nil)
			c.requireResumed(t, p.Config(), false)
			successor := f.open(p.State())
			c.requireResumed(t, successor.Config(), true)
			c.requireResumed(t, p.Config(), true)
			c.requireResumed(t, stranger.Config(), false)
		})
	}
}

// A ticket is good for the period in which it was made and the next, and the clock of another machine
// may be a little ahead.
func TestTicketsAge(t *testing.T) {
	now := time.Now().Add(period) // so that midnight, if it comes, changes nothing
	for _, inFile := range []bool{true, false} {
		f := newFixture(t)
		if !inFile {
			f.paths.Secrets = ""
		}
		// Looks with other times stand for the clock: crypto/tls's own is the tests', for which no
		// ticket is old.
		for days, want := range []bool{true, true, false, false} {
			a := f.open(nil)
			a.look(now)
			c := newClient(tls.VersionTLS13)
			c.requireResumed(t, a.Config(), false)
			a.look(now.Add(time.Duration(days) * period))
			c.requireResumed(t, a.Config(), want)
		}
	}
	f := newFixture(t)
	ahead, here := f.open(nil), f.open(nil)
	ahead.look(now.Add(period))
	here.look(now)
	c := newClient(tls.VersionTLS13)
	c.requireResumed(t, ahead.Config(), false)
	c.requireResumed(t, here.Config(), true)
}

// The secret of a period is overwritten: the state after it has no key of an earlier period.
func TestRatchet(t *testing.T) {
	now := time.Now()
	r := newRatchet(now)
	first := r.at(now)
	again := ratchetOf(r.state(), now)
	for day := range 5 {
		at := now.Add(time.Duration(day) * period)
		a, b := r.at(at), again.at(at)
		if a[0] != b[0] || a[1] != b[1] {
			t.Fatalf("day %d: the successor has other keys", day)
		}
		if day == 1 && a[1] != first[0] {
			t.Error("the key of yesterday is not the one that was used")
		}
		if day > 1 && (a[0] == first[0] || a[1] == first[0]) {
			t.Errorf("day %d: the key of the first day is still there", day)
		}
	}
	if back := r.at(now); back[0] == first[0] {
		t.Error("the clock was set back, and an old key is there again")
	}
	for name, p := range map[string][]byte{"short": make([]byte, 39), "old": make([]byte, 40), "none": nil} {
		if ratchetOf(p, now) != nil {
			t.Errorf("%s: got a ratchet of %d bytes, want none", name, len(p))
		}
	}
	if r.at(now.Add(catchUpMax * 2 * period)); r.period != periodOf(now)+catchUpMax*2-1 {
		t.Errorf("after a long sleep: got period %d", r.period)
	}
}

// Machines change to a new secret one after the other: first they accept it, then they use it, then they
// drop the old.
func TestSecretsChange(t *testing.T) {
	f := newFixture(t)
	a, b := f.open(nil), f.open(nil)
	load := func(files *Files, secrets string) {
		f.secrets(secrets)
		files.look(time.Now())
	}
	c := newClient(tls.VersionTLS13)
	c.requireResumed(t, a.Config(), false)
	for _, step := range []struct{ a, b string }{{"ab", "a"}, {"ab", "ab"}, {"ba", "ab"}, {"ba", "ba"}, {"b", "ba"}} {
		load(a, step.a)
		load(b, step.b)
		for range 2 {
			c.requireResumed(t, b.Config(), true)
			c.requireResumed(t, a.Config(), true)
		}
	}
	load(a, "c")
	c.requireResumed(t, a.Config(), false)
}

// countChanges returns a function for how many changes of files were counted since.
func countChanges() (since func() (loaded, failed uint64)) {
	loaded, failed := counters.loaded.Load(), counters.failed.Load()
	return func() (uint64, uint64) { return counters.loaded.Load() - loaded, counters.failed.Load() - failed }
}

// A file that is wrong changes nothing, says so once, and is used when it is right.
func TestWrongFiles(t *testing.T) {
	f := newFixture(t)
	files := f.open(nil)
	c := newClient(tls.VersionTLS13)
	c.requireResumed(t, files.Config(), false)
	name := func() string {
		return newClient(tls.VersionTLS13).connect(t, files.Config()).PeerCertificates[0].Subject.CommonName
	}
	changes := countChanges()
	look := func(what, wantName string, wantLoaded, wantFailed uint64) {
		t.Helper()
		for range 3 {
			files.look(time.Now())
		}
		if got := name(); got != wantName {
			t.Errorf("%s: got certificate %s, want %s", what, got, wantName)
		}
		if loaded, failed := changes(); loaded != wantLoaded || failed != wantFailed {
			t.Errorf("%s: got %d loaded and %d failed, want %d and %d", what, loaded, failed, wantLoaded, wantFailed)
		}
		if got := f.log.Count("level=ERROR"); got != int(wantFailed) {
			t.Errorf("%s: got %d lines about it, want %d:\n%s", what, got, wantFailed, f.log.String())
		}
		c.requireResumed(t, files.Config(), true)
	}
	look("at first", "1", 0, 0)
	cert, key := f.pair()
	f.write(f.paths.Cert, cert)
	look("a certificate without its key", "1", 0, 1)
	f.write(f.paths.Key, key)
	look("its key, too", "2", 1, 1)
	f.write(f.paths.Cert, "nonsense")
	look("nonsense", "2", 1, 2)
	if err := os.Remove(f.paths.Cert); err != nil {
		t.Fatal(err)
	}
	look("a certificate that is gone", "2", 1, 3)
	f.write(f.paths.Cert, cert)
	look("the same again", "2", 2, 3)
	f.write(f.paths.Secrets, "short\n")
	look("a short secret", "2", 2, 4)
	f.secrets("ba")
	look("a good one", "2", 3, 4)
	if err := os.Chmod(f.paths.Secrets, 0o604); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(f.paths, nil); err == nil || !strings.Contains(err.Error(), "mode") {
		t.Errorf("a file that others can read: got %v, want an error about its mode", err)
	}
	for what, text := range map[string]string{"empty": "", "only a comment": "# a\n", "many": strings.Repeat(strings.Repeat("QUFB", 11)+"\n", secretsMax+1)} {
		f.write(f.paths.Secrets, text)
		if _, err := Open(f.paths, nil); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
}

// A certificate comes from files or from the program, and a successor whose secret is in a file keeps
// that.
func TestPaths(t *testing.T) {
	f := newFixture(t)
	made := f.open(nil).Certificate()
	for name, paths := range map[string]Paths{
		"nothing": {}, "empty": {Certificate: new(tls.Certificate)}, "no key": {Cert: f.paths.Cert}, "no certificate": {Key: f.paths.Key},
		"both": {Cert: f.paths.Cert, Key: f.paths.Key, Certificate: made},
		"gone": {Cert: f.paths.Cert + "x", Key: f.paths.Key},
	} {
		if _, err := Open(paths, nil); err == nil || !strings.HasPrefix(err.Error(), "tlsfiles: ") {
			t.Errorf("%s: got %v, want an error of tlsfiles", name, err)
		}
	}
	memory, err := Open(Paths{Certificate: made}, nil)
	if err != nil {
		t.Fatal(err)
	}
	memory.look(time.Now())
	if memory.Certificate() != made {
		t.Error("got another certificate than the program's")
	}
	shared := f.open(memory.State())
	if state := shared.State(); state != nil {
		t.Errorf("got a state of %d bytes, want none: the secret is in the file", len(state))
	}
}

// A look between the writes of a certificate and its key, or of halves of a file, is not a failure.
func TestLookBetweenWrites(t *testing.T) {
	f := newFixture(t)
	files := f.open(nil)
	changes := countChanges()
	for range 3 {
		cert, key := f.pair()
		f.write(f.paths.Cert, cert)
		files.look(time.Now())
		f.write(f.paths.Key, key)
		files.look(time.Now())
		f.write(f.paths.Secrets, "short\n")
		files.look(time.Now())
		f.secrets("a")
		files.look(time.Now())
	}
	if loaded, failed := changes(); loaded != 6 || failed != 0 || f.log.Count("level=ERROR") > 0 {
		t.Errorf("got %d loaded and %d failed, want 6 and none:\n%s", loaded, failed, f.log.String())
	}
}

// Handshakes go on while certificates and secrets change, and none fails.
func TestChangesUnderLoad(t *testing.T) {
	f := newFixture(t)
	files := f.open(nil)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { files.Watch(ctx, time.Millisecond) })
	for i := range 4 {
		running.Go(func() {
			for c := newClient(tls.VersionTLS13 - uint16(i%2)); ctx.Err() == nil; {
				c.connect(t, files.Config())
			}
		})
	}
	for i := range 10 {
		f.renew()
		f.secrets([]string{"ab", "ba"}[i%2])
		cert := fmt.Sprint(f.made)
		testnet.Eventually(t, "the new certificate", func() bool {
			leaf, err := x509.ParseCertificate(files.Certificate().Certificate[0])
			return err == nil && leaf.Subject.CommonName == cert
		})
	}
	stop()
	running.Wait()
}
