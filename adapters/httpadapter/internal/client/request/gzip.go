package request

import (
	"compress/flate"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
)

// gzipReader decodes the body of an answer. It takes a decoder from the pool for the first read.
type gzipReader struct {
	body     io.ReadCloser
	reads    error // of two reads at the same time
	isClosed error // of reads after Close

	mu sync.Mutex
	zr *gzip.Reader // nil: none yet, or in use
	// err is what a read returns at once. It is reads while a read uses the decoder.
	err error
}

// Decode makes the answer's body decode itself if it is compressed because this package asked for that.
// reads is the error of two reads at the same time, isClosed that of reads after Close.
func (r *Request) Decode(resp *http.Response, reads, isClosed error) {
	if !r.Gzip || !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return
	}
	resp.Body = &gzipReader{body: resp.Body, reads: reads, isClosed: isClosed}
	delete(resp.Header, "Content-Encoding")
	delete(resp.Header, "Content-Length")
	resp.ContentLength = -1
	resp.Uncompressed = true
}

// decoders has decoders that read from noFlate.
var decoders sync.Pool

// noFlate is empty. As a flate.Reader it needs no buffer of the decoder's.
type noFlate struct{}

var _ flate.Reader = noFlate{}

func (noFlate) Read([]byte) (int, error) { return 0, io.EOF }
func (noFlate) ReadByte() (byte, error)  { return 0, io.EOF }

// takeDecoder returns a decoder that has read the beginning of r.
func takeDecoder(r io.Reader) (*gzip.Reader, error) {
	zr, _ := decoders.Get().(*gzip.Reader)
	if zr == nil {
		zr = new(gzip.Reader)
	}
	if err := zr.Reset(r); err != nil {
		releaseDecoder(zr)
		return nil, err
	}
	return zr, nil
}

func releaseDecoder(zr *gzip.Reader) {
	_ = zr.Reset(noFlate{})
	decoders.Put(zr)
}

// Read implements io.Reader.
func (g *gzipReader) Read(p []byte) (int, error) {
	zr, err := g.acquire()
	if err != nil {
		return 0, err
	}
	defer g.release(zr)
	return zr.Read(p)
}

// acquire takes the decoder for a read.
func (g *gzipReader) acquire() (*gzip.Reader, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return nil, g.err
	}
	zr := g.zr
	g.zr, g.err = nil, g.reads
	if zr != nil {
		return zr, nil
	}
	g.mu.Unlock() // reading the beginning may take long
	zr, err := takeDecoder(g.body)
	g.mu.Lock()
	if g.err != g.reads { // closed meanwhile
		if zr != nil {
			releaseDecoder(zr)
		}
		return nil, g.err
	}
	if err != nil {
		g.err = err
		return nil, err
	}
	return zr, nil
}

// release ends a read.
func (g *gzipReader) release(zr *gzip.Reader) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == g.reads {
		g.zr, g.err = zr, nil
		return
	}
	releaseDecoder(zr) // closed meanwhile
}

// Close implements io.Closer.
func (g *gzipReader) Close() error {
	g.mu.Lock()
	if g.zr != nil {
		releaseDecoder(g.zr)
		g.zr = nil
	}
	g.err = g.isClosed
	g.mu.Unlock()
	return g.body.Close()
}
