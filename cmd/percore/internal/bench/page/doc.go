// Package page writes a benchmark's measurements as a self-contained page of HTML with charts.
package page
