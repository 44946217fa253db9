//go:build go1.27

package httpadapter

// cutOffIsEnd is true with Go 1.26: see there.
const cutOffIsEnd = false
