// Package report writes package bench's measurements: as a table for people, as
// JSON and CSV for programs, as Go benchmark results for benchstat, and as a
// page of HTML with charts that needs nothing but itself.
package report
