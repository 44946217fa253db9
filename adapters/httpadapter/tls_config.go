package httpadapter

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
)

// tlsConfig returns the configuration that [http.Server.ServeTLS] would make of the http.Server's
// TLSConfig and the certificate. It calls ServeTLS with nothing to accept: only there net/http sets up
// HTTP/2 and checks certificates.
func (s *Server) tlsConfig(certFile, keyFile string) (*tls.Config, error) {
	s.installed.Do(s.install)
	err := startServe(func(l net.Listener) error { return s.srv.ServeTLS(l, certFile, keyFile) })
	if err != nil && err != http.ErrServerClosed {
		return nil, err
	}
	config := s.srv.TLSConfig.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	config.NextProtos = nextProtos(config.NextProtos, protocols(s.srv))
	hasCert := len(config.Certificates) > 0 || config.GetCertificate != nil || config.GetConfigForClient != nil
	if !hasCert || certFile != "" || keyFile != "" {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// nextProtos returns a copy of protos, for ALPN, that has "h2" and "http/1.1" exactly if they are
// spoken.
func nextProtos(protos []string, spoken http.Protocols) []string {
	protos = slices.Clone(protos)
	for _, p := range []struct {
		name   string
		spoken bool
	}{{"h2", spoken.HTTP2()}, {"http/1.1", spoken.HTTP1()}} {
		if !p.spoken {
			protos = slices.DeleteFunc(protos, func(name string) bool { return name == p.name })
		} else if !slices.Contains(protos, p.name) {
			protos = append(protos, p.name)
		}
	}
	return protos
}
