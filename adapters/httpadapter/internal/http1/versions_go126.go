//go:build !go1.27

package http1

// See versions.go.
const (
	tooLargeInHeader = true
	expectDenies     = false
	connectCloses    = false
	closingIsSilent  = false

	CutOffIsEnd = true
	EndIsRead   = true

	// FieldsMax bounds the memory of a header of many short lines, which net/http doesn't do before Go
	// 1.27: it is ten times the limit of that.
	FieldsMax = 5000
)
