//go:build !go1.27

package request

// Drains is false: Go 1.26 closes the connection.
const Drains = false

// RetriesBreaches is true.
const RetriesBreaches = true
