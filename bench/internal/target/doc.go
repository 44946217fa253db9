// Package target is the process under test: one small server, the same code
// whatever engine it listens on, which reports what it cost.
//
// The harness starts one such process per sample and speaks to it through
// package control: OpStart brings the server up, OpUsage takes a snapshot of
// the process's own accounting (getrusage, /proc/self, the Go runtime).
package target
