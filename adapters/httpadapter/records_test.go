package httpadapter

import (
	"bufio"
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
	"slices"
	"strings"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// recordClient is a TLS 1.3 client that makes its own records (RFC 8446, section 5). So it decides
// where they begin and what else they carry: crypto/tls sends no KeyUpdate. It reads with
// crypto/tls.
type recordClient struct {
	*client
	tcp     *net.TCPConn
	newHash func() hash.Hash
	secret  []byte
	aead    cipher.AEAD
	iv      []byte
	seq     uint64
	held    []byte // goes out with the next write
}

const (
	typeAlert     = 21
	typeHandshake = 22
	typeData      = 23
)

var (
	closeNotify           = []byte{1, 0}
	keyUpdate             = []byte{24, 0, 0, 1, 0}
	keyUpdateWithResponse = []byte{24, 0, 0, 1, 1}
)

// dialRecords connects a recordClient.
func (f *fixture) dialRecords(config *tls.Config) *recordClient {
	f.Helper()
	var keys bytes.Buffer
	config = config.Clone()
	config.KeyLogWriter, config.MinVersion = &keys, tls.VersionTLS13
	tcp := f.dialTCP().Conn.(*net.TCPConn)
	tc := tls.Client(tcp, config)
	if err := tc.Handshake(); err != nil {
		f.Fatalf("handshake: %v", err)
	}
	c := &recordClient{client: &client{tc, f, bufio.NewReader(tc)}, tcp: tcp}
	switch suite := tc.ConnectionState().CipherSuite; suite {
	case tls.TLS_AES_128_GCM_SHA256:
		c.newHash = sha256.New
	case tls.TLS_AES_256_GCM_SHA384:
		c.newHash = sha512.New384
	default:
		f.Skipf("the processor has no AES: the handshake has chosen %s", tls.CipherSuiteName(suite))
	}
	for line := range strings.Lines(keys.String()) {
		if fields := strings.Fields(line); fields[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(fields[2])
			if err != nil {
				f.Fatal(err)
			}
			c.setSecret(secret)
		}
	}
	return c
}

// setSecret starts using a traffic secret.
func (c *recordClient) setSecret(secret []byte) {
	keyBytes := 16
	if len(secret) > sha256.Size {
		keyBytes = 32
	}
	block, err := aes.NewCipher(expandLabel(c.newHash, secret, "key", keyBytes))
	if err != nil {
		c.t.Fatal(err)
	}
	c.aead, err = cipher.NewGCM(block)
	if err != nil {
		c.t.Fatal(err)
	}
	c.secret, c.iv, c.seq = secret, expandLabel(c.newHash, secret, "iv", 12), 0
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

// record builds the next record.
func (c *recordClient) record(contentType byte, content []byte) []byte {
	inner := append(bytes.Clone(content), contentType)
	header := []byte{typeData, 3, 3}
	header = binary.BigEndian.AppendUint16(header, uint16(len(inner)+c.aead.Overhead()))
	nonce := bytes.Clone(c.iv)
	seq := binary.BigEndian.AppendUint64(nil, c.seq)
	for i, b := range seq {
		nonce[4+i] ^= b
	}
	c.seq++
	return c.aead.Seal(header, nonce, inner, header)
}

// data builds a record from part of a request.
func (c *recordClient) data(text string) []byte { return c.record(typeData, []byte(text)) }

// update builds the record of a KeyUpdate, and changes the key after it.
func (c *recordClient) update(message []byte) []byte {
	made := c.record(typeHandshake, message)
	c.setSecret(expandLabel(c.newHash, c.secret, "traffic upd", len(c.secret)))
	return made
}

// write sends records in one piece.
func (c *recordClient) write(records ...[]byte) {
	c.t.Helper()
	_ = c.tcp.SetDeadline(time.Now().Add(testnet.HangTimeout))
	all := append(c.held, bytes.Join(records, nil)...)
	c.held = nil
	if _, err := c.tcp.Write(all); err != nil {
		c.t.Logf("sending records: %v", err) // the answers will show it
	}
}

// pieces sends records in pieces of size bytes.
func (c *recordClient) pieces(records []byte, size int) {
	for piece := range slices.Chunk(records, size) {
		c.write(piece)
	}
}
