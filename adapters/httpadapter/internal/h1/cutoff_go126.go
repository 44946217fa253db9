//go:build !go1.27

package h1

// cutOffIsEnd says that net/http, once it has seen that the client cut a body off, takes the body for
// read to its end: a Read after that finds io.EOF, and the connection becomes idle before it is closed.
// Go 1.27 takes it for closed too early.
const cutOffIsEnd = true

// endIsRead says that a connection whose client has sent Expect goes on only if the handler has read the
// end of the body itself. With Go 1.27 it is enough that Close has.
const endIsRead = true
