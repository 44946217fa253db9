//go:build go1.27

package client

// drains says whether closing a body reads what is left of it, if that is little, as in net/http since
// Go 1.27, so that the connection can be used again.
const drains = true
