// Package tlsfiles makes a server's TLS configuration from files that may change while it runs:
// certificates are renewed every few weeks, and session ticket secrets that several machines share
// are replaced. A successor process gets what it needs, so clients can resume their sessions there:
//
//	files, err := tlsfiles.Open(tlsfiles.Paths{Cert: "cert.pem", Key: "key.pem"}, nil)
//	...
//	go files.Watch(ctx, 5*time.Second)
//	server.TLSConfig = files.Config()
//	part := handover.Part{
//		Name: "https", Address: ":443", Server: server, State: files.State, Restore: files.Restore,
//		Serve: func(l net.Listener) error { return server.ServeTLS(l, "", "") },
//	}
package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Paths are the files. They may be links, such as those of Kubernetes; the files they lead to are
// watched.
type Paths struct {
	// Cert is the server's certificate, followed by the certificates that it depends on. Key is its
	// private key. Both files are PEM. Both paths are empty if Certificate is set.
	Cert, Key string

	// Certificate is used instead of files: the program has made it, and it is never replaced.
	Certificate *tls.Certificate

	// Secrets, if not empty, is the file from which the session ticket keys are derived. Clients resume
	// their sessions at each machine that has the same file. It has 1 to 16 secrets, one a line, of 32
	// bytes or more in base64, as "openssl rand -base64 32" prints them; empty lines and lines that begin
	// with # don't count. The first secret makes new tickets, and tickets of all are accepted. Other
	// users must not be able to read the file, nor the group to write it. Without it Open makes the
	// secret, and only this process and its successors have it.
	Secrets string
}

// Files is a TLS configuration that follows its files. Open makes one. Its methods are safe for
// concurrent use.
type Files struct {
	paths Paths
	log   *slog.Logger

	cert    atomic.Pointer[tls.Certificate]
	tickets tls.Config // only its session ticket keys are used: a copy of Config would not follow them

	mu sync.Mutex

	// guarded by mu
	keys    ticketKeys
	period  int64 // of the keys that are set
	watched []*watched
}

// watched are files that are loaded together.
type watched struct {
	what  string
	paths []string
	load  func() error
	seen  []os.FileInfo // when they were last loaded, or that failed; nil: a file that can't be looked at

	// The files that were seen could not be loaded, and this was not reported: perhaps they are being
	// written. The next look loads them again, even if they are the same.
	doubtful bool
}

// Open reads the files, and fails if one can't be read or is wrong: the error names it. Later changes
// need Watch, and are logged to log; nil means slog's default logger.
func Open(paths Paths, log *slog.Logger) (*Files, error) {
	if log == nil {
		log = slog.Default()
	}
	f := &Files{paths: paths, log: log, keys: newRatchet(time.Now())}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case (paths.Cert == "") != (paths.Key == ""):
		return nil, errors.New("tlsfiles: Cert and Key of Paths go together, and one of them is empty")
	case (paths.Cert == "") == (paths.Certificate == nil):
		return nil, errors.New("tlsfiles: Paths must have either Cert and Key, or a Certificate")
	case paths.Cert == "" && len(paths.Certificate.Certificate) == 0:
		return nil, errors.New("tlsfiles: the Certificate of Paths is empty")
	case paths.Cert == "":
		f.cert.Store(paths.Certificate)
	default:
		f.watched = append(f.watched, &watched{what: "certificate", paths: []string{paths.Cert, paths.Key}, load: f.loadCertLocked})
	}
	if paths.Secrets != "" {
		f.watched = append(f.watched, &watched{what: "session ticket keys", paths: []string{paths.Secrets}, load: f.loadSecretsLocked})
	}
	f.setKeysLocked(time.Now())
	for _, w := range f.watched {
		w.look()
		if err := w.load(); err != nil {
			return nil, fmt.Errorf("tlsfiles: %w", err)
		}
	}
	enlist(f)
	return f, nil
}

// Config returns a new configuration with the certificate and the session tickets from the files. The
// caller may complete it, and copies follow the files as well. If the caller replaces VerifyConnection
// to check connections, it must call the old one, or they are not counted.
func (f *Files) Config() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.cert.Load(), nil },
		WrapSession: func(c tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
			return f.tickets.EncryptTicket(c, s)
		},
		UnwrapSession: func(ticket []byte, c tls.ConnectionState) (*tls.SessionState, error) {
			return f.tickets.DecryptTicket(ticket, c)
		},
		VerifyConnection: func(c tls.ConnectionState) error {
			if c.DidResume {
				counters.resumed.Add(1)
			} else {
				counters.full.Add(1)
			}
			return nil
		},
	}
}

// Certificate returns the current certificate, which must not be changed.
func (f *Files) Certificate() *tls.Certificate { return f.cert.Load() }

// State returns the secret of session tickets for a successor process, or nil if it is in a file.
// Don't store it, since it can decrypt tickets. Use it as Part.State of package handover.
func (f *Files) State() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.keys.(*ratchet); ok {
		return r.state()
	}
	return nil
}

// Restore takes over what State of the predecessor returned, before the first connection is served. A
// state that is empty, wrong or too old changes nothing, and a secret in a file stays. Use it as
// Part.Restore of package handover.
func (f *Files) Restore(state []byte) {
	now := time.Now()
	r := ratchetOf(state, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	if r != nil && f.paths.Secrets == "" {
		f.keys = r
		f.setKeysLocked(now)
	}
}

// Watch checks the files once every pause, until ctx ends, and loads files that have changed; session
// ticket keys change every day. If a file is wrong in two checks, Watch logs that once, and goes on
// with what it had: the first check may come between the writes of a certificate and its key. pause
// must be positive; with a nil ctx Watch panics.
func (f *Files) Watch(ctx context.Context, pause time.Duration) {
	if ctx == nil {
		panic("tlsfiles: Files.Watch: ctx is nil")
	}
	for tick := time.NewTicker(pause); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			f.look(time.Now())
		}
	}
}

// look loads the files that have changed, and changes the ticket keys if it is time to.
func (f *Files) look(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.watched {
		changed := w.look()
		if !changed && !w.doubtful {
			continue
		}
		err := w.load()
		if w.doubtful = err != nil && changed; !w.doubtful {
			f.report(w.what, err)
		}
	}
	if f.period != periodOf(now) {
		f.setKeysLocked(now)
	}
}

// look reports whether the files have changed since the last look. It comes before they are loaded, so a
// file that changes while it is read is loaded again.
func (w *watched) look() (changed bool) {
	before := w.seen
	w.seen = make([]os.FileInfo, len(w.paths))
	for i, path := range w.paths {
		w.seen[i], _ = os.Stat(path)
	}
	return !slices.EqualFunc(before, w.seen, isSame)
}

// isSame reports whether a file is as it was. Files are replaced by others, or written over at another
// time.
func isSame(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// report counts and logs a load after a change.
func (f *Files) report(what string, err error) {
	if err != nil {
		counters.failed.Add(1)
		f.log.Error("the "+what+" changed, and the new one is not used; the one before stays", "error", err)
		return
	}
	counters.loaded.Add(1)
	f.log.Info("the "+what+" was loaded anew", "certificate valid until", notAfter(f.cert.Load()))
}

// loadCertLocked loads the certificate. One of the two files may have changed before the other, and then
// they don't fit until the next look.
func (f *Files) loadCertLocked() error {
	cert, err := tls.LoadX509KeyPair(f.paths.Cert, f.paths.Key)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", f.paths.Cert, f.paths.Key, err)
	}
	f.cert.Store(&cert)
	return nil
}

// loadSecretsLocked loads the secrets, and sets their keys.
func (f *Files) loadSecretsLocked() error {
	secrets, err := readSecrets(f.paths.Secrets)
	if err != nil {
		return err
	}
	if before, ok := f.keys.(fileSecrets); ok {
		before.clear()
	}
	f.keys = secrets
	f.setKeysLocked(time.Now())
	return nil
}

// setKeysLocked gives crypto/tls the keys, which copies them.
func (f *Files) setKeysLocked(now time.Time) {
	keys := f.keys.at(now)
	f.tickets.SetSessionTicketKeys(keys)
	f.period = periodOf(now)
	clear(keys)
}

// notAfter returns the time until which a certificate is valid.
func notAfter(cert *tls.Certificate) time.Time {
	leaf := cert.Leaf
	if leaf == nil {
		var err error
		if leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return time.Time{}
		}
	}
	return leaf.NotAfter
}
