package httpadapter

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"net"
	"slices"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// recordClient is a TLS 1.3 client that makes its own records. It reads with crypto/tls.
type recordClient struct {
	*client
	*testnet.Records
	tcp  *net.TCPConn
	held []byte // goes out with the next write
}

// dialRecords connects a recordClient.
func (f *fixture) dialRecords(config *tls.Config) *recordClient {
	f.Helper()
	tcp := f.dialTCP().Conn.(*net.TCPConn)
	tc, records := testnet.DialRecords(f, tcp, config)
	return &recordClient{client: &client{tc, f, bufio.NewReader(tc)}, Records: records, tcp: tcp}
}

// data builds a record from part of a request.
func (c *recordClient) data(text string) []byte {
	return c.Make(testnet.RecordData, []byte(text))
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
