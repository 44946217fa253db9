// Package report writes the measurements of package bench: as a table for people, as JSON and CSV
// for programs, and as Go benchmark results for benchstat.
package report
