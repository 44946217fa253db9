package rpc

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/h2"
)

// addHeader adds the header to a message, in memory of m. It reports false if the client doesn't take
// it.
func (c *call) addHeader(to *h2.Message, m *memory, md metadata.MD, compressor string) bool {
	fields := append(m.fields[:0], contentType(c.subtype()))
	if compressor != "" {
		fields = append(fields, h2.MakeField("grpc-encoding", compressor))
	}
	to.Status, to.Fields = http.StatusOK, appendMetadata(fields, md)
	return c.fits(to.Fields)
}

// sendRefusal answers a call that is not served.
func (c *call) sendRefusal() {
	m := memories.Get().(*memory)
	defer m.release()
	fields, _ := statusFields(append(m.fields[:0], contentType(c.subtype())), c.refusal.status)
	if !c.fits(fields) {
		c.carrier().Reset(h2.InternalError)
		return
	}
	_ = c.carrier().Send(h2.Message{Status: c.refusal.httpStatus, Fields: fields, End: true, Hold: true})
}

// fits reports whether the client takes a header or trailers. The first list of an answer also has a
// :status, which counts 42 bytes.
func (c *call) fits(fields []h2.Field) bool {
	most := c.carrier().headerBytesMax()
	if most == 0 {
		return true
	}
	n := 0
	for i := range fields {
		n += fields[i].Size()
	}
	return n+42 <= most
}

// notSentError returns the status of a call that can send no more.
func (c *call) notSentError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return errClosing
	}
	return contextError(c.err)
}

// sendError ends a call after h2 has failed to send, and returns the status.
func (c *call) sendError(err error) error {
	var reset *h2.StreamError
	var gone *h2.ConnError
	switch {
	case errors.As(err, &gone):
		c.Cancelled(gone)
	case errors.As(err, &reset), errors.Is(err, h2.ErrEnded):
		c.Cancelled(err)
	default: // an invalid field: a client would refuse it from grpc-go
		c.carrier().Reset(h2.ProtocolError)
		return status.Error(codes.Internal, err.Error())
	}
	return c.notSentError()
}

// takeHeader returns the header if it has not been sent, and marks it as sent.
func (c *call) takeHeader() (md metadata.MD, compressor string, first, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done || c.headerSent {
		return nil, "", false, c.done
	}
	c.headerSent = true
	return c.header, c.compressorLocked(), true, false
}

// reportHeader reports a header to the stats handler.
func (c *call) reportHeader(md metadata.MD, compressor string) {
	if sh := c.stats(); sh != nil {
		sh.HandleRPC(c.ctx, &stats.OutHeader{Header: md.Copy(), Compression: compressor})
	}
}

// sendHeader sends the header that was set, with md added.
func (c *call) sendHeader(md metadata.MD) error {
	c.sending.Lock()
	defer c.doneSending()
	c.mu.Lock()
	if !c.done && !c.headerSent && md.Len() > 0 {
		c.header = metadata.Join(c.header, md)
	}
	c.mu.Unlock()
	header, compressor, first, done := c.takeHeader()
	switch {
	case done:
		return c.notSentError()
	case !first:
		return errHeaderSent
	}
	m := memories.Get().(*memory)
	defer m.release()
	var msg h2.Message
	if !c.addHeader(&msg, m, header, compressor) {
		return c.overLimit()
	}
	if err := c.carrier().Send(msg); err != nil {
		return c.sendError(err)
	}
	c.reportHeader(header, compressor)
	return nil
}

// overLimit ends a call whose fields the client does not take.
func (c *call) overLimit() error {
	c.end(codes.Internal, context.Canceled, false)
	c.carrier().Reset(h2.InternalError)
	return errHeaderLimit
}

// sendMessage sends a message, after the header, whose fields are in m. With hold the message may wait
// for the status. It is reported before a status may follow.
func (c *call) sendMessage(e *encoded, m *memory, hold bool) error {
	msg := h2.Message{Hold: hold}
	c.sending.Lock()
	defer c.doneSending()
	header, compressor, first, done := c.takeHeader()
	if done {
		return c.notSentError()
	}
	if first {
		if !c.addHeader(&msg, m, header, compressor) {
			return c.overLimit()
		}
		c.reportHeader(header, compressor)
	}
	if err := e.send(c.carrier(), msg); err != nil {
		return c.sendError(err)
	}
	e.of.sent(c.conn.counts, c.stats(), c.ctx, false)
	return nil
}

// sendStatus sends the status, after the header; nil is OK. If the call is done, sendStatus returns
// why, and sends nothing. last reports that the handler has returned.
func (c *call) sendStatus(st *status.Status, last bool) error {
	c.sending.Lock()
	defer c.doneSending()
	return c.sendTrailers(st, last, false)
}

// sendTrailers is sendStatus for a goroutine that holds sending. late reports that the call is done and
// this is its late status.
func (c *call) sendTrailers(st *status.Status, last, late bool) error {
	c.mu.Lock()
	if c.done && !late {
		reason := c.err
		c.mu.Unlock()
		c.sendLateLocked() // before the handler returns
		return contextError(reason)
	}
	first := !c.headerSent
	header, compressor, trailer := c.header, c.compressorLocked(), c.trailer
	c.headerSent = true
	c.mu.Unlock()

	m := memories.Get().(*memory)
	defer m.release()
	msg := h2.Message{Hold: last}
	trailers := m.trailers[:0]
	switch {
	case first && len(header) > 0:
		if !c.addHeader(&msg, m, header, compressor) {
			return c.overLimit()
		}
		c.reportHeader(header, compressor)
	case first:
		msg.Status = http.StatusOK
		trailers = append(trailers, contentType(c.subtype()))
	}
	trailers, hasDetails := statusFields(trailers, st)
	if hasDetails {
		c.mu.Lock()                  // SetTrailer may be reading it
		delete(trailer, detailsName) // the user's own would be sent too
		c.mu.Unlock()
	}
	trailers = appendMetadata(trailers, trailer)
	if !c.fits(trailers) {
		return c.overLimit()
	}
	if first && len(header) == 0 {
		msg.Fields, msg.End = trailers, true
	} else {
		msg.Trailers = trailers
	}
	c.end(st.Code(), context.Canceled, false) // the context ends, as in grpc-go, before the status is sent
	c.late.CompareAndSwap(lateDue, lateSent)  // the handler was quicker
	if err := c.carrier().Send(msg); err != nil {
		return c.sendError(err)
	}
	if !last {
		c.carrier().CloseRead() // a RecvMsg may wait
	}
	if sh := c.stats(); sh != nil {
		sh.HandleRPC(c.ctx, &stats.OutTrailer{Trailer: trailer.Copy()})
	}
	return nil
}
