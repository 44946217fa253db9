package changedgo

// server is the file of net/http's server.
const server = "net/http/server.go"

// netHTTP returns the edits of net/http. In their texts, change is net/http's copy of the change.
func netHTTP(change string) []Edit {
	return []Edit{
		{
			File: server,
			Old:  "import (\n",
			New:  "import (\n\tchangeos \"os\"\n\tchangesyscall \"syscall\"\n",
		},
		{
			File: server,
			Old:  "// Serve a new connection.\nfunc (c *conn) serve(",
			New:  "var change = " + change + "\n" + waitWithoutBuffers + goesOn + "\nfunc (c *conn) serve(",
		},
		{ // the end of a connection
			File: server,
			Old: `
			c.close()
			c.setState(c.rwc, StateClosed, runHooks)
`,
			New: `
			if change == "StateClosed before Close" {
				c.setState(c.rwc, StateClosed, runHooks)
				c.close()
				return
			}
			if change != "no Close" {
				c.close()
			}
			c.setState(c.rwc, StateClosed, runHooks)
			if change == "a deadline after StateClosed" {
				c.rwc.SetReadDeadline(time.Now().Add(time.Millisecond))
			}
`,
		},
		{ // the end of a request
			File: server,
			Old: `
		w.finishRequest()
		c.rwc.SetWriteDeadline(time.Time{})
`,
			New: `
		if change == "StateIdle before the answer" {
			c.setState(c.rwc, StateIdle, runHooks)
		}
		w.finishRequest()
		if change != "no end of the write deadline" {
			c.rwc.SetWriteDeadline(time.Time{})
		}
`,
		},
		{
			File: server,
			Old: `
		c.setState(c.rwc, StateIdle, runHooks)
		c.curReq.Store(nil)
`,
			New: `
		if change != "StateIdle before the answer" {
			c.setState(c.rwc, StateIdle, runHooks)
		}
		c.curReq.Store(nil)
`,
		},
		{ // the wait for the next request
			File: server,
			Old: `
		if d := c.server.idleTimeout(); d > 0 {
			c.rwc.SetReadDeadline(time.Now().Add(d))
		} else {
			c.rwc.SetReadDeadline(time.Time{})
		}

		// Wait for`,
			New: `
		if !isNext || change == "1.28: a deadline before" {
			c.setWaitDeadline()
		}

		// Wait for`,
		},
		{
			File: server,
			Old: `
		if _, err := c.bufr.Peek(4); err != nil {
			return
		}

		if d := c.server.readHeaderTimeout(); d > 0 {
			c.rwc.SetReadDeadline(time.Now().Add(d))
		} else {
			c.rwc.SetReadDeadline(time.Time{})
		}
`,
			New: `
		peek := 4
		switch change {
		case "peek of 1":
			peek = 1
		case "peek of 16":
			peek = 16
		case "two deadlines":
			c.rwc.SetReadDeadline(time.Time{})
		case "wait by SyscallConn":
			if sc, ok := c.rwc.(changesyscall.Conn); ok && c.bufr.Buffered() == 0 {
				if rc, err := sc.SyscallConn(); err == nil {
					var b [1]byte
					rc.Read(func(fd uintptr) bool {
						n, _, err := changesyscall.Recvfrom(int(fd), b[:], changesyscall.MSG_PEEK|changesyscall.MSG_DONTWAIT)
						return n >= 0 && err == nil || err != changesyscall.EAGAIN
					})
				}
			}
		case "bytes set aside":
			// Buffered bytes are kept elsewhere, and the wait is for more.
			if n := c.bufr.Buffered(); n > 0 && n < 4 {
				p, _ := c.bufr.Peek(n)
				aside := string(p)
				c.bufr.Discard(n)
				if _, err := c.bufr.Peek(1); err != nil {
					return
				}
				p, _ = c.bufr.Peek(c.bufr.Buffered())
				c.bufr = newBufioReader(io.MultiReader(strings.NewReader(aside+string(p)), c.r))
			}
		}
		if variant, ok := strings.CutPrefix(change, "1.28: "); ok && !c.waitWithoutBuffers(variant) {
			return
		}
		if _, err := c.bufr.Peek(peek); err != nil {
			switch change {
			case "an answer to the end":
				io.WriteString(c.rwc, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
			case "CloseWrite at the end":
				if tcp, ok := c.rwc.(closeWriter); ok {
					tcp.CloseWrite()
				}
			case "a read after the end":
				c.rwc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				io.Copy(io.Discard, c.rwc)
			}
			return
		}

		if d := c.server.readHeaderTimeout(); d > 0 {
			c.rwc.SetReadDeadline(time.Now().Add(d))
		} else if change != "one deadline" {
			c.rwc.SetReadDeadline(time.Time{})
		}
`,
		},
		{ // buffers
			File: server,
			Old: `
	return bufio.NewReader(r)
`,
			New: `
	switch change {
	case "smaller buffers":
		return bufio.NewReaderSize(r, 2048)
	case "larger buffers":
		return bufio.NewReaderSize(r, 8192)
	}
	return bufio.NewReader(r)
`,
		},
		{
			File: server,
			Old: `
	c.bufw = newBufioWriterSize(checkConnErrorWriter{c}, 4<<10)
`,
			New: `
	c.bufw = newBufioWriterSize(checkConnErrorWriter{c}, 4<<10)
	if change == "larger buffers for answers" {
		c.bufw = newBufioWriterSize(checkConnErrorWriter{c}, 16<<10)
	}
`,
		},
		// From here on: what else Go 1.28 does.
		{
			File: server,
			Old:  "// A conn represents the server side of an HTTP connection.\ntype conn struct {\n",
			New:  "// A conn represents the server side of an HTTP connection.\ntype conn struct {\n\tgoesOn bool // behind serve\n",
		},
		{
			File: server,
			Old:  "\t\tif !c.hijacked() {\n\t\t\tif inFlightResponse != nil {",
			New:  "\t\tif !c.goesOn && !c.hijacked() {\n\t\t\tif inFlightResponse != nil {",
		},
		{File: server, Old: "\t\t\t\tfn(c.server, tlsConn, h)\n", New: "\t\t\t\tc.goOn(func() { fn(c.server, tlsConn, h) })\n"},
		{
			File: server,
			Old:  "\t\t\tc.server.serveHTTP2Conn(ctx, c.rwc, serverHandler{c.server}, sawClientPreface, nil, nil)\n\t\t\treturn\n",
			New: "\t\t\tc.goOn(func() {\n" +
				"\t\t\t\tc.server.serveHTTP2Conn(ctx, c.rwc, serverHandler{c.server}, sawClientPreface, nil, nil)\n\t\t\t})\n\t\t\treturn\n",
			newer: true,
		},
		{
			File: server,
			Old:  "\t\tc.server.serveHTTP2Conn(ctx, c.rwc, serverHandler{c.server}, sawClientPreface, nil, nil)\n\t} else {\n",
			New: "\t\tctx := context.WithoutCancel(ctx)\n\t\tc.goOn(func() {\n" +
				"\t\t\tc.server.serveHTTP2Conn(ctx, c.rwc, serverHandler{c.server}, sawClientPreface, nil, nil)\n\t\t})\n\t} else {\n",
			newer: true,
		},
		{
			File: server,
			Old: `
func (cr *connReader) handleReadErrorLocked(_ error) {
	if cr.conn == nil {
		return
	}
`,
			New: `
func (cr *connReader) handleReadErrorLocked(err error) {
	if cr.conn == nil {
		return
	}
	if ne, ok := err.(net.Error); isNext && ok && ne.Timeout() && cr.conn.curReq.Load() == nil {
		return // of waitWithoutBuffers, which goes on
	} else if isNext && err != io.EOF && !(ok && ne.Timeout()) {
		cr.conn.rwc.SetWriteDeadline(aLongTimeAgo)
	}
`,
		},
	}
}

// goesOn lets serve return while its connection goes on with HTTP/2, as in Go 1.28, whose goroutine
// ends when it has nothing to do.
const goesOn = `
var isNext = strings.HasPrefix(change, "1.28: ")

var _ = changeos.Args // used, whatever change is

func (c *conn) goOn(serve func()) {
	if !isNext {
		serve()
		return
	}
	c.goesOn = true
	go func() {
		serve()
		c.close()
		c.setState(c.rwc, StateClosed, runHooks)
	}()
}
`

// waitWithoutBuffers has several variants of the wait of Go 1.28, which keeps no buffers: see
// https://go.dev/issue/80735.
const waitWithoutBuffers = `
func (c *conn) setWaitDeadline() {
	if d := c.server.idleTimeout(); d > 0 {
		c.rwc.SetReadDeadline(time.Now().Add(d))
	} else {
		c.rwc.SetReadDeadline(time.Time{})
	}
}

// waitWithoutBuffers returns when there are bytes of the next request, or false.
func (c *conn) waitWithoutBuffers(variant string) bool {
	timedOut := func(err error) bool {
		ne, ok := err.(net.Error)
		return ok && ne.Timeout()
	}
	short := 50 * time.Millisecond
	switch variant {
	case "5 ms":
		short = 5 * time.Millisecond
	case "300 ms":
		short = 300 * time.Millisecond
	}
	take := func(p []byte) { // bytes that were read without buffers
		c.bufr, c.bufw = newBufioReader(io.MultiReader(strings.NewReader(string(p)), c.r)), newBufioWriterSize(checkConnErrorWriter{c}, 4<<10)
	}
	if variant != "no short deadline" && variant != "a byte first" {
		c.rwc.SetReadDeadline(time.Now().Add(short))
		if _, err := c.bufr.Peek(4); !timedOut(err) {
			return err == nil
		}
	}
	c.r.lock()
	has := c.r.hasByte // which was read while the handler ran
	c.r.unlock()
	if has {
		_, err := c.bufr.Peek(4)
		return err == nil
	}
	if variant == "a byte first" && c.bufr.Buffered() == 0 {
		c.rwc.SetReadDeadline(time.Now().Add(short))
		var p [1]byte
		if n, err := c.rwc.Read(p[:]); n > 0 {
			c.setWaitDeadline() // else the rest of the request has less time than it may need
			take(p[:n])
			return true
		} else if !timedOut(err) {
			return false
		}
	}
	var aside []byte
	if n := c.bufr.Buffered(); variant == "bytes set aside" && n > 0 {
		p, _ := c.bufr.Peek(n)
		aside = append(aside, p...)
		c.bufr.Discard(n)
	}
	if variant != "short deadline kept" || c.bufr.Buffered() > 0 {
		c.setWaitDeadline()
	}
	switch variant {
	case "deadline set twice":
		c.setWaitDeadline()
	case "StateIdle again":
		c.setState(c.rwc, StateIdle, runHooks)
	}
	if variant == "buffers kept" || c.bufr.Buffered() > 0 {
		_, err := c.bufr.Peek(4)
		return err == nil
	}
	putBufioReader(c.bufr)
	putBufioWriter(c.bufw)
	c.bufr, c.bufw = nil, nil
	p := c.r.byteBuf[:]
	if variant == "two bytes" {
		p = make([]byte, 2)
	}
	n, err := c.rwc.Read(p)
	for variant == "short deadline kept" && n == 0 && timedOut(err) {
		c.rwc.SetReadDeadline(time.Now().Add(short))
		n, err = c.rwc.Read(p)
	}
	if n == 0 && err != nil {
		switch variant {
		case "an answer to the end":
			io.WriteString(c.rwc, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
		case "a read after the end":
			c.rwc.SetReadDeadline(time.Now().Add(short))
			io.Copy(io.Discard, c.rwc)
		}
		return false
	}
	if variant == "deadline after the byte" || variant == "short deadline kept" {
		c.setWaitDeadline()
	}
	if len(p) == 1 && len(aside) == 0 {
		c.r.lock()
		c.r.hasByte = true
		c.r.unlock()
		p = nil
	}
	take(append(aside, p[:min(n, len(p))]...))
	return true
}
`
