// Package alerts has only a test, which checks that Prometheus itself can read docs/alerts.yml.
package alerts
