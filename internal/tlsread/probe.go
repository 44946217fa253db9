package tlsread

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/percore/percore/internal/loop"
)

// Probe returns the reason why connections of this process can't be read without waiting above
// crypto/tls, or nil if they can. In the first call, a crypto/tls server reads records that a crypto/tls
// client has made. It reads them in pieces, on a connection in memory. That takes a millisecond.
//
// It checks the following:
//
//   - When the connection below fails with a temporary error (loop.ErrWouldWait), Read of a tls.Conn
//     returns exactly that error, and what it has read so far is still there when it goes on.
//   - Read reads from the connection below only after it has returned everything it has.
//   - After a client's farewell Read returns io.EOF, each time.
var Probe = sync.OnceValue(func() error {
	identity, err := newIdentity()
	if err != nil {
		return err
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if err := playRecords(identity, version, loop.ErrWouldWait); err != nil {
			return fmt.Errorf("%s: %w", tls.VersionName(version), err)
		}
	}
	return nil
})

// The texts of the records.
const (
	shortText = "GET / HTTP/1.1\r\nHost: tlsread\r\n\r\n"
	otherText = "POST / HTTP/1.1\r\nHost: tlsread\r\n"
	readBytes = 4096 // of a Read, as a rule
)

// records are a client and a server after their handshake.
type records struct {
	client, server     *tls.Conn
	ofServer, ofClient *recordsStream // the connections below
}

// recordsStream is one side of a connection in memory: of a net.Pipe during the handshake. Afterwards it
// has the script's bytes.
type recordsStream struct {
	net.Conn
	rest    []byte // bytes that Read returns
	dry     error  // Read's error where they end, after the handshake; nil before it
	asked   bool   // Read has returned dry
	written []byte // since the handshake
}

func (s *recordsStream) Read(p []byte) (int, error) {
	switch {
	case s.dry == nil:
		return s.Conn.Read(p)
	case len(s.rest) == 0:
		s.asked = true
		return 0, s.dry
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *recordsStream) Write(p []byte) (int, error) {
	if s.dry == nil {
		return s.Conn.Write(p)
	}
	s.written = append(s.written, p...)
	return len(p), nil
}

// shakeRecords performs a handshake between a client and a server. When it returns no goroutine is left.
func shakeRecords(identity tls.Certificate, version uint16, dry error) (*records, error) {
	up, down := net.Pipe()
	_ = up.SetDeadline(time.Now().Add(time.Minute)) // in case that both write, since the handshake fails
	r := &records{ofServer: &recordsStream{Conn: down}, ofClient: &recordsStream{Conn: up}}
	config := &tls.Config{
		Certificates:           []tls.Certificate{identity},
		MinVersion:             version,
		MaxVersion:             version,
		CurvePreferences:       []tls.CurveID{tls.CurveP256}, // allowed by any GODEBUG=fips140
		SessionTicketsDisabled: true,
		InsecureSkipVerify:     true,
	}
	r.server, r.client = tls.Server(r.ofServer, config), tls.Client(r.ofClient, config)
	shaken := make(chan error, 1)
	go func() {
		shaken <- r.client.Handshake()
		up.Close() // if the handshake has failed, make the server fail, too
	}()
	err := r.server.Handshake()
	down.Close()
	if err := errors.Join(err, <-shaken); err != nil {
		return nil, fmt.Errorf("shaking hands: %w", err)
	}
	r.ofServer.dry, r.ofClient.dry = dry, dry
	return r, nil
}

// make returns the records for text, or the farewell if text is empty.
func (r *records) make(text string) []byte {
	r.ofClient.written = nil
	if text == "" {
		_ = r.client.CloseWrite()
	} else {
		_, _ = io.WriteString(r.client, text)
	}
	return r.ofClient.written
}

// read reads until the server is dry, and returns everything it finds. size is the size of each Read.
func (r *records) read(size int) (text string, err error) {
	p := make([]byte, size)
	for {
		r.ofServer.asked = false
		n, err := r.server.Read(p)
		text += string(p[:n])
		switch {
		case err == nil && n > 0:
		case err == r.ofServer.dry && r.ofServer.asked && len(r.ofServer.rest) == 0:
			return text, nil
		case err == io.EOF && len(r.ofServer.rest) == 0:
			return text, io.EOF
		default:
			return text, fmt.Errorf("Read of tls.Conn returned %d, %v, with %d bytes before it and dry %t",
				n, err, len(r.ofServer.rest), r.ofServer.asked)
		}
	}
}

// delivery holds bytes of records, and the text that the server reads once it has received them.
type delivery struct {
	name  string
	bytes []byte
	size  int // of each Read
	want  string
	end   error // io.EOF after the client's farewell
}

// deliveries returns the script. The client makes the records in this order.
func (r *records) deliveries() []delivery {
	all := []delivery{{"nothing", nil, readBytes, "", nil}}
	for _, cut := range []int{1, 4, 5, 6, 30, -1} { // in the header, after it, in the rest
		record := r.make(shortText)
		if cut < 0 {
			cut += len(record)
		}
		all = append(all,
			delivery{"a part of a record", record[:cut], readBytes, "", nil},
			delivery{"nothing behind a part", nil, readBytes, "", nil},
			delivery{"the rest of a record", record[cut:], readBytes, shortText, nil})
	}
	a, b, c := r.make(shortText), r.make(otherText), r.make(shortText)
	large := strings.Repeat("large", 5000)
	d := r.make(large)
	last := append(r.make(shortText), r.make("")...)
	return append(all,
		delivery{"two records and a part", slices.Concat(a, b, c[:7]), readBytes, shortText + otherText, nil},
		delivery{"the rest of the third", c[7:], 1, shortText, nil},
		delivery{"records longer than the buffer", d, 999, large, nil},
		delivery{"a record and a farewell", last, readBytes, shortText, io.EOF},
		delivery{"nothing behind a farewell", nil, readBytes, "", io.EOF})
}

// playRecords delivers records to a server and returns the first difference. The server's
// connection fails with dry where the records end.
func playRecords(identity tls.Certificate, version uint16, dry error) error {
	r, err := shakeRecords(identity, version, dry)
	if err != nil {
		return err
	}
	for _, d := range r.deliveries() {
		r.ofServer.rest = d.bytes
		got, err := r.read(d.size)
		if got != d.want || err != d.end {
			return fmt.Errorf("%s: got %d bytes and %v, and not %d and %v", d.name, len(got), err, len(d.want), d.end)
		}
	}
	return nil
}

// newIdentity makes a certificate that no client trusts.
func newIdentity() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
