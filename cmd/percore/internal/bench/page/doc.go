// Package page writes a benchmark's measurements as a page of HTML with charts that needs nothing but
// itself.
package page
