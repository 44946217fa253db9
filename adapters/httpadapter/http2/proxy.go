package http2

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// goThrough makes the call go through a proxy, or to the server itself if proxy is nil. It reports
// false if that is left to the base: only cleartext proxies are served here.
func (c *call) goThrough(proxy *url.URL) bool {
	if proxy == nil {
		if c.Proxy != nil { // it is sent again
			c.Proxy, c.ProxyAuth, c.Key, c.Addr, c.Target = nil, "", c.Server, c.Server, http1.OutgoingTarget(c.Req)
		}
		return true
	}
	if proxy.Scheme != "http" || !http1.IsPlainHost(proxy.Host) || c.Kind&clearH2 != 0 {
		return false
	}
	if c.Req.Method == http.MethodConnect {
		return false
	}
	c.Proxy, c.Addr, c.Key = proxy, http1.HostPort(proxy, "80"), proxy.String()+" " // no address has a space
	if c.Kind&overTLS != 0 {
		c.Key += c.Server
	} else {
		c.Target, c.ProxyAuth = http1.ProxiedTarget(c.Req), proxyAuthorization(proxy)
	}
	return true
}

// proxyAuthorization returns the value of the field of this name for a proxy, or "".
func proxyAuthorization(proxy *url.URL) string {
	if proxy.User == nil {
		return ""
	}
	password, _ := proxy.User.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password))
}

// tunnelTimeout is how long a proxy may take to connect to a server, as in net/http.
const tunnelTimeout = time.Minute

// tunnel makes the proxy connect pc to the server. TLS follows. If it fails, the caller closes pc.
func (t *Transport) tunnel(ctx context.Context, h *pool.Host, pc net.Conn) error {
	base := t.base
	header := base.ProxyConnectHeader
	if get := base.GetProxyConnectHeader; get != nil {
		var err error
		if header, err = get(ctx, h.Proxy, h.Server); err != nil {
			return err
		}
	}
	if header == nil {
		header = make(http.Header)
	}
	if auth := proxyAuthorization(h.Proxy); auth != "" {
		header = header.Clone()
		header.Set("Proxy-Authorization", auth)
	}
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: h.Server}, Host: h.Server, Header: header}
	resp, err := t.connect(ctx, pc, req)
	if err != nil {
		return err
	}
	if base.OnProxyConnectResponse != nil {
		if err := base.OnProxyConnectResponse(ctx, h.Proxy, req, resp); err != nil {
			return err
		}
	}
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	_, text, ok := strings.Cut(resp.Status, " ")
	if !ok {
		text = "unknown status code"
	}
	return errors.New(text)
}

// connect sends a CONNECT and reads the header of the answer. Nothing follows the header, since the
// client speaks first in TLS.
func (t *Transport) connect(ctx context.Context, pc net.Conn, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, tunnelTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { pc.Close() })
	err := req.Write(pc)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(bufio.NewReader(io.LimitReader(pc, request.MaxHeaderBytes(t.base))), req)
	}
	if !stop() {
		return nil, ctx.Err()
	}
	return resp, err
}
