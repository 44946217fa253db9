// Package kubernetes has manifests and an image for percore serve. Its tests check them.
package kubernetes
