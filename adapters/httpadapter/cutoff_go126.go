//go:build !go1.27

package httpadapter

// cutOffIsEnd says that net/http, once it has seen that the client cut a body off, takes the body for
// read to its end: a Read after that finds io.EOF, and the connection becomes idle before it is closed.
// Go 1.27 takes it for closed too early.
const cutOffIsEnd = true
