// Package semantics has the rules of HTTP messages that don't depend on the version of the protocol
// (RFC 9110), as net/http applies them. Package http1 builds on it, and so does the code that
// serves HTTP/2.
package semantics
