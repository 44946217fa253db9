//go:build !go1.27

package http2

const lengthWithoutResets = false // see length.go
