module github.com/percore/percore

go 1.26.0

require (
	github.com/valyala/bytebufferpool v1.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
)
