//go:build !go1.27

package link

const knowsOtherTLS = false
