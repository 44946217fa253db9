package changedgo

// records is the file of crypto/tls that reads records.
const records = "crypto/tls/conn.go"

// cryptoTLS returns the edits of crypto/tls, for Go 1.28, which keeps no buffer of a record while it
// waits for the next one, and none of handshake messages once they are read. Go gives these buffers to
// other connections. Here they are overwritten: code that still reads them fails.
func cryptoTLS(change string) []Edit {
	return []Edit{
		{File: records, Old: "import (\n", New: "import (\n\tchangeos \"os\"\n\tchangestrings \"strings\"\n"},
		{
			File: records,
			Old:  "// readRecordOrCCS reads one or more TLS records",
			New: `
var _ = changeos.Args // used, whatever the change is

var releasesBuffers = changestrings.HasPrefix(` + change + `, "1.28: ")

func releaseBuffer(b *bytes.Buffer, longest int) {
	if !releasesBuffers || b.Len() > 0 || b.Cap() <= longest {
		return
	}
	b.Reset()
	p := b.AvailableBuffer()
	p = p[:cap(p)]
	for i := range p {
		p[i] = 0xdb
	}
	*b = bytes.Buffer{}
}

// readRecordOrCCS reads one or more TLS records`,
		},
		{File: records, Old: "\tc.input.Reset(nil)\n", New: "\tc.input.Reset(nil)\n\treleaseBuffer(&c.rawInput, 1024)\n"},
		{
			File: records,
			Old: `
			if err := c.handlePostHandshakeMessage(); err != nil {
				return 0, err
			}
		}
`,
			New: `
			if err := c.handlePostHandshakeMessage(); err != nil {
				return 0, err
			}
		}
		releaseBuffer(&c.hand, 0)
`,
		},
		{
			File: records,
			Old:  "\tc.handshakeErr = c.handshakeFn(handshakeCtx)\n",
			New:  "\tc.handshakeErr = c.handshakeFn(handshakeCtx)\n\treleaseBuffer(&c.hand, 0)\n",
		},
	}
}
