package tlsfiles

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

// Tickets let a client resume a session at any process that has the same keys. A key serves for one
// period and the next one, so a ticket is good for at least a day and at most two: crypto/tls itself
// changes its key every day.
//
//	keys from             key of a period                        who has them
//	a file of secrets     HKDF(secret, number of the period)     all machines with the file
//	a secret in memory    each period's secret is HKDF of the    this process, and its successor after a
//	                      one before, which is overwritten       handover
//
// The first secret of a file makes new tickets. Tickets of all secrets are accepted, even of the next
// period: the clock of another machine may be ahead.

const (
	period      = 24 * time.Hour
	secretBytes = sha256.Size
	secretsMax  = 16

	// catchUpMax bounds the work of a process that slept, or has a clock that was set: after more periods
	// it makes a new secret.
	catchUpMax = 1000
)

// ticketKeys returns the keys for crypto/tls's SetSessionTicketKeys at a time: the first makes tickets.
type ticketKeys interface {
	at(now time.Time) [][32]byte
}

func periodOf(now time.Time) int64 { return now.Unix() / int64(period/time.Second) }

// fileSecrets are the secrets of a file.
type fileSecrets [][]byte

// errSecrets describes the file's form.
var errSecrets = errors.New("want one secret a line, of 32 bytes or more in base64, as openssl rand -base64 32 prints it")

// readSecrets reads a file of secrets. Empty lines and those that begin with # are skipped.
func readSecrets(path string) (all fileSecrets, err error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		secret := make([]byte, base64.StdEncoding.DecodedLen(len(line)))
		n, err := base64.StdEncoding.Decode(secret, line)
		if err != nil || n < secretBytes {
			return nil, fmt.Errorf("%s, line %d: %w", path, i+1, errSecrets)
		}
		all = append(all, secret[:n])
	}
	if len(all) == 0 || len(all) > secretsMax {
		return nil, fmt.Errorf("%s: it has %d secrets, want 1 to %d: %w", path, len(all), secretsMax, errSecrets)
	}
	return all, nil
}

// readPrivate reads a file that others can neither read nor change.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of the file that is read, not of another one that has its name by now
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o027 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s has mode %v: want a file that other users can't read, and the group can't write (0600 or 0640)", path, mode)
	}
	const max = 64 << 10
	if info.Size() > max {
		return nil, fmt.Errorf("%s has %d bytes: want %d at most", path, info.Size(), max)
	}
	text := make([]byte, info.Size())
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

func (s fileSecrets) at(now time.Time) (keys [][32]byte) {
	p := periodOf(now)
	for _, secret := range s {
		for _, p := range []int64{p, p - 1, p + 1} {
			keys = append(keys, derive(secret, "percore session ticket "+strconv.FormatInt(p, 10)))
		}
	}
	return keys
}

func (s fileSecrets) clear() {
	for _, secret := range s {
		clear(secret)
	}
}

// ratchet is a secret in memory. The secret of a period gives those of all later ones, but not of
// earlier ones.
type ratchet struct {
	period int64 // that secret is for: the one before the current
	secret [secretBytes]byte
}

func newRatchet(now time.Time) *ratchet {
	r := &ratchet{period: periodOf(now) - 1}
	rand.Read(r.secret[:])
	return r
}

func (r *ratchet) at(now time.Time) (keys [][32]byte) {
	target := periodOf(now) - 1
	if target-r.period > catchUpMax {
		*r = *newRatchet(now)
	}
	for r.period < target {
		r.secret = nextSecret(r.secret) // overwrites the one before
		r.period++
	}
	next := nextSecret(r.secret) // if the clock was set back r.period is later, and tickets stay readable
	keys = [][32]byte{ticketKey(next), ticketKey(r.secret)}
	clear(next[:])
	return keys
}

func nextSecret(s [secretBytes]byte) [secretBytes]byte { return derive(s[:], "percore next secret") }
func ticketKey(s [secretBytes]byte) [32]byte           { return derive(s[:], "percore session ticket") }

func derive(secret []byte, info string) (key [32]byte) {
	out, err := hkdf.Key(sha256.New, secret, nil, info, len(key))
	if err != nil {
		panic(err) // the lengths are constants
	}
	copy(key[:], out)
	clear(out)
	return key
}

// state returns the ratchet for a successor.
func (r *ratchet) state() []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(r.period)), r.secret[:]...)
}

// ratchetOf returns the predecessor's ratchet, or nil if p is none of a time near now.
func ratchetOf(p []byte, now time.Time) *ratchet {
	if len(p) != 8+secretBytes {
		return nil
	}
	r := &ratchet{period: int64(binary.BigEndian.Uint64(p))}
	if age := periodOf(now) - r.period; age < 0 || age > catchUpMax {
		return nil
	}
	copy(r.secret[:], p[8:])
	return r
}
