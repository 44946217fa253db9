// Package tlsfiles makes the TLS configuration of a server whose certificate and ticket keys change
// while it runs: certificates are renewed every few weeks, and keys that are shared between machines
// are replaced.
package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Paths are the files. Cert and Key may be empty, for the certificate given to Open; and Secrets, for a
// secret that only this process and its successors have.
type Paths struct {
	Cert, Key string // PEM; Cert with the certificates that it depends on
	Secrets   string // for session tickets; see tickets.go
}

// Files is a TLS configuration. Its methods are safe for concurrent use.
type Files struct {
	paths Paths
	log   *slog.Logger

	cert    atomic.Pointer[tls.Certificate]
	tickets tls.Config // only its session ticket keys are used: a copy of Config would not follow them

	counts counts

	mu      sync.Mutex
	keys    ticketKeys     // guarded by mu
	period  int64          // of the keys that are set; guarded by mu
	seen    [2]fileVersion // of the certificate's files, as it was last loaded or failed; guarded by mu
	secrets fileVersion    // guarded by mu

	// The files that were seen last could not be loaded, and this was not reported: perhaps they are being
	// written. The next look loads them again, even if they are the same.
	certDoubtful, secretsDoubtful bool // guarded by mu
}

// counts are for the metrics.
type counts struct {
	loaded, failed atomic.Uint64 // of files that have changed
	full, resumed  atomic.Uint64 // handshakes
}

// Open reads the files. made is the certificate if there are no files of one. state is what State of
// the predecessor returned; nil: there is none.
func Open(paths Paths, made *tls.Certificate, state []byte, log *slog.Logger) (*Files, error) {
	f := &Files{paths: paths, log: log}
	f.mu.Lock()
	defer f.mu.Unlock()
	if paths.Cert == "" {
		f.cert.Store(made)
	} else if err := f.loadCertLocked(); err != nil {
		return nil, err
	}
	if paths.Secrets != "" {
		if err := f.loadSecretsLocked(); err != nil {
			return nil, err
		}
	} else if r := ratchetOf(state, time.Now()); r != nil {
		f.keys = r
	} else {
		f.keys = newRatchet(time.Now())
	}
	f.setKeysLocked(time.Now())
	return f, nil
}

// Config returns the configuration, which follows the files. It may be copied, and completed.
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
				f.counts.resumed.Add(1)
			} else {
				f.counts.full.Add(1)
			}
			return nil
		},
	}
}

// Certificate returns the current certificate.
func (f *Files) Certificate() *tls.Certificate { return f.cert.Load() }

// State returns the secret for a successor, or nil if it is in a file. It must not be stored.
func (f *Files) State() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.keys.(*ratchet); ok {
		return r.state()
	}
	return nil
}

// Watch looks at the files every pause, until ctx ends, and loads those that have changed. If one is
// wrong at two looks it says so once, and goes on with what it had. A look may come between the writes
// of a certificate and its key.
func (f *Files) Watch(ctx context.Context, pause time.Duration) {
	for tick := time.NewTicker(pause); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			f.Look(time.Now())
		}
	}
}

// Look loads the files that have changed, and changes the ticket keys if it is time to.
func (f *Files) Look(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paths.Cert != "" {
		f.loadChanged("certificate", f.certChanged(), &f.certDoubtful, f.loadCertLocked)
	}
	if f.paths.Secrets != "" {
		f.loadChanged("session ticket keys", !f.secrets.is(versionOf(f.paths.Secrets)), &f.secretsDoubtful, f.loadSecretsLocked)
	}
	if f.period != periodOf(now) {
		f.setKeysLocked(now)
	}
}

// loadChanged loads files that have changed since the last look, or are doubtful.
func (f *Files) loadChanged(what string, changed bool, doubtful *bool, load func() error) {
	if !changed && !*doubtful {
		return
	}
	err := load()
	if *doubtful = err != nil && changed; !*doubtful {
		f.report(what, err)
	}
}

// report counts and logs a load after a change.
func (f *Files) report(what string, err error) {
	if err != nil {
		f.counts.failed.Add(1)
		f.log.Error("the "+what+" changed, and the new one is not used; the one before stays", "err", err)
		return
	}
	f.counts.loaded.Add(1)
	f.log.Info("the "+what+" was loaded anew", "certificate valid until", notAfter(f.cert.Load()))
}

// loadCertLocked loads the certificate. The versions are taken first: a file that changes while it is
// read is loaded again. One of the two may have changed before the other, and then they don't fit
// until the next look.
func (f *Files) loadCertLocked() error {
	f.seen = f.certVersions()
	cert, err := tls.LoadX509KeyPair(f.paths.Cert, f.paths.Key)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", f.paths.Cert, f.paths.Key, err)
	}
	f.cert.Store(&cert)
	return nil
}

func (f *Files) certChanged() bool {
	now := f.certVersions()
	return !now[0].is(f.seen[0]) || !now[1].is(f.seen[1])
}

func (f *Files) certVersions() [2]fileVersion {
	return [2]fileVersion{versionOf(f.paths.Cert), versionOf(f.paths.Key)}
}

// loadSecretsLocked loads the secrets, and sets their keys.
func (f *Files) loadSecretsLocked() error {
	f.secrets = versionOf(f.paths.Secrets)
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

// fileVersion tells the contents of a file from those before and after. Files are replaced by others, or
// written over at another time. Links are followed.
type fileVersion struct{ info os.FileInfo } // nil: the file can't be looked at

func versionOf(path string) fileVersion {
	info, _ := os.Stat(path)
	return fileVersion{info}
}

func (v fileVersion) is(other fileVersion) bool {
	a, b := v.info, other.info
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Figures are what is to be known of a Files.
type Figures struct {
	NotAfter       time.Time // the end of the certificate
	Loaded, Failed uint64    // changes of files that were taken over, and that were wrong
	Full, Resumed  uint64    // handshakes
}

// Figures returns the figures so far.
func (f *Files) Figures() Figures {
	n := &f.counts
	return Figures{notAfter(f.cert.Load()), n.loaded.Load(), n.failed.Load(), n.full.Load(), n.resumed.Load()}
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
