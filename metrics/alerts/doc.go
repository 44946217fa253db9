// Package alerts has only a test: Prometheus itself must be able to read docs/alerts.yml.
package alerts
