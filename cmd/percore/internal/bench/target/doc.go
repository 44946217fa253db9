// Package target is the process under test: one small server, the same code on
// any engine, which reports its own cost.
//
// The harness starts one such process per sample and speaks to it through
// package control: OpStart brings the server up, OpUsage takes a snapshot of
// the process's own accounting (getrusage, /proc/self, the Go runtime).
package target
