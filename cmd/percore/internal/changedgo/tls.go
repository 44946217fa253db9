package changedgo

// records is the file of crypto/tls that reads records.
const records = "crypto/tls/conn.go"

// Next returns the edits that make crypto/tls Go 1.28's, as far as that is known: it keeps no buffer of
// a record while it waits for the next one, and none of handshake messages once they are read. Go gives
// these buffers to other connections. Here they are overwritten: code that still reads them fails.
func Next() []Edit {
	return []Edit{
		{
			File: records,
			Old:  "// readRecordOrCCS reads one or more TLS records",
			New: `
func releaseBuffer(b *bytes.Buffer, longest int) {
	if b.Len() > 0 || b.Cap() <= longest {
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
