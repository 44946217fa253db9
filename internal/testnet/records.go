package testnet

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"net"
	"strings"
	"testing"
)

// Records makes the records of a TLS 1.3 client (RFC 8446, section 5). So a test decides where they
// begin and what else they carry: crypto/tls sends no KeyUpdate.
type Records struct {
	t       testing.TB
	newHash func() hash.Hash
	secret  []byte
	aead    cipher.AEAD
	iv      []byte
	seq     uint64
}

// The content types of records, and messages for them.
const (
	RecordAlert     = 21
	RecordHandshake = 22
	RecordData      = 23
)

// Contents of records: an alert (RFC 8446, section 6.1) and handshake messages (section 4.6.3).
var (
	CloseNotify           = []byte{1, 0}           // an alert
	KeyUpdate             = []byte{24, 0, 0, 1, 0} // update_not_requested
	KeyUpdateWithResponse = []byte{24, 0, 0, 1, 1} // update_requested
)

// DialRecords performs the handshake of a client on conn. Records makes what it sends afterwards, and
// the *tls.Conn, which must not write, reads. It skips the test if the handshake chooses a cipher
// suite that Records doesn't know.
func DialRecords(t testing.TB, conn net.Conn, config *tls.Config) (*tls.Conn, *Records) {
	t.Helper()
	var keys bytes.Buffer
	config = config.Clone()
	config.KeyLogWriter, config.MinVersion = &keys, tls.VersionTLS13
	tc := tls.Client(conn, config)
	if err := tc.Handshake(); err != nil {
		t.Fatalf("handshake: %v", err)
	}
	r := &Records{t: t}
	switch suite := tc.ConnectionState().CipherSuite; suite {
	case tls.TLS_AES_128_GCM_SHA256:
		r.newHash = sha256.New
	case tls.TLS_AES_256_GCM_SHA384:
		r.newHash = sha512.New384
	default:
		t.Skipf("the processor has no AES: the handshake has chosen %s", tls.CipherSuiteName(suite))
	}
	for line := range strings.Lines(keys.String()) {
		if fields := strings.Fields(line); fields[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			r.setSecret(secret)
		}
	}
	return tc, r
}

// setSecret starts using a traffic secret.
func (r *Records) setSecret(secret []byte) {
	keyBytes := 16
	if len(secret) > sha256.Size {
		keyBytes = 32
	}
	block, err := aes.NewCipher(expandLabel(r.newHash, secret, "key", keyBytes))
	if err != nil {
		r.t.Fatal(err)
	}
	r.aead, err = cipher.NewGCM(block)
	if err != nil {
		r.t.Fatal(err)
	}
	r.secret, r.iv, r.seq = secret, expandLabel(r.newHash, secret, "iv", 12), 0
}

// expandLabel is HKDF-Expand-Label of RFC 8446, section 7.1, without a context.
func expandLabel(newHash func() hash.Hash, secret []byte, label string, length int) []byte {
	label = "tls13 " + label
	info := string(binary.BigEndian.AppendUint16(nil, uint16(length))) + string(rune(len(label))) + label + "\x00"
	out, err := hkdf.Expand(newHash, secret, info, length)
	if err != nil {
		panic(err)
	}
	return out
}

// Make builds the next record.
func (r *Records) Make(contentType byte, content []byte) []byte {
	inner := append(bytes.Clone(content), contentType)
	header := []byte{RecordData, 3, 3}
	header = binary.BigEndian.AppendUint16(header, uint16(len(inner)+r.aead.Overhead()))
	nonce := bytes.Clone(r.iv)
	seq := binary.BigEndian.AppendUint64(nil, r.seq)
	for i, b := range seq {
		nonce[4+i] ^= b
	}
	r.seq++
	return r.aead.Seal(header, nonce, inner, header)
}

// Skip makes the following records wrong, as if one was lost.
func (r *Records) Skip() { r.seq++ }

// Update builds the record of a KeyUpdate, and changes the key after it.
func (r *Records) Update(message []byte) []byte {
	made := r.Make(RecordHandshake, message)
	r.setSecret(expandLabel(r.newHash, r.secret, "traffic upd", len(r.secret)))
	return made
}
