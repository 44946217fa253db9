//go:build go1.27

package link

// knowsOtherTLS says that a DialTLSContext may return other types than *tls.Conn that tell their TLS.
const knowsOtherTLS = true
