// Package report writes package bench's measurements: as a table for people, as JSON and CSV for
// programs, and as Go benchmark results for benchstat.
package report
