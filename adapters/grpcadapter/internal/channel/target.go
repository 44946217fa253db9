package channel

import (
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
)

// parse finds the resolver for the target. A target without a scheme, or with an unknown one, is a
// name of the default scheme.
func (c *Channel) parse() error {
	if u, err := url.Parse(c.config.Target); err == nil {
		if c.builder = c.builderFor(u.Scheme); c.builder != nil {
			c.target = resolver.Target{URL: *u}
			return nil
		}
	}
	u, err := url.Parse(defaultScheme() + ":///" + c.config.Target)
	if err != nil {
		return err
	}
	if c.builder = c.builderFor(u.Scheme); c.builder == nil {
		return fmt.Errorf("could not get resolver for default scheme: %q", u.Scheme)
	}
	c.target = resolver.Target{URL: *u}
	return nil
}

// defaultScheme returns the scheme of targets without one. It is dns, or what resolver.SetDefaultScheme
// has set. passthrough is also what GetDefaultScheme returns if nothing has been set, so then a
// grpc.ClientConn, which knows the difference, has to show it.
func defaultScheme() string {
	scheme := resolver.GetDefaultScheme()
	if scheme != "passthrough" {
		return scheme
	}
	cc, err := grpc.NewClient("host", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "dns"
	}
	defer cc.Close()
	scheme, _, _ = strings.Cut(cc.CanonicalTarget(), ":")
	return scheme
}

func (c *Channel) builderFor(scheme string) resolver.Builder {
	for _, b := range c.config.Resolvers {
		if b.Scheme() == scheme {
			return b
		}
	}
	return resolver.Get(scheme)
}

// findAuthority sets the authority, from the configuration, the credentials, the resolver or the target,
// in this order.
func (c *Channel) findAuthority() error {
	ofCreds := ""
	if creds := c.config.Build.DialCreds; creds != nil {
		//lint:ignore SA1019 credentials still set it
		ofCreds = creds.Info().ServerName
	}
	ours, endpoint := c.config.Authority, c.target.Endpoint()
	overrider, overrides := c.builder.(resolver.AuthorityOverrider)
	switch {
	case ours != "" && ofCreds != "" && ours != ofCreds:
		return fmt.Errorf("ClientConn's authority from transport creds %q and dial option %q don't match", ofCreds, ours)
	case ours != "":
		c.authority = ours
	case ofCreds != "":
		c.authority = ofCreds
	case overrides:
		c.authority = overrider.OverrideAuthority(c.target)
	case strings.HasPrefix(endpoint, ":"):
		c.authority = "localhost" + encodeAuthority(endpoint)
	default:
		c.authority = encodeAuthority(endpoint)
	}
	return nil
}

// encodeAuthority escapes the bytes that an authority can't have (RFC 3986, section 3.2).
func encodeAuthority(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte("-_.~!$&'()*+,;=:[]@", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// serverName returns the name that a server at addr must have. The user's authority overrides the
// resolver's.
func (c *Channel) serverName(addr resolver.Address) string {
	if c.config.Authority == "" && addr.ServerName != "" {
		return addr.ServerName
	}
	return c.authority
}

// Target returns the target as the configuration has it.
func (c *Channel) Target() string { return c.config.Target }

// CanonicalTarget returns the target with its scheme.
func (c *Channel) CanonicalTarget() string { return c.target.String() }

// Authority returns the authority of calls.
func (c *Channel) Authority() string { return c.authority }
