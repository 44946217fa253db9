// Package kubernetes has manifests and an image for percore serve, and tests that check them.
package kubernetes
