package serving

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// maxConnections limits the memory of clients.
	maxConnections = 256
	// maxOfSource is how many of them one address may have. A Prometheus needs one, and a second while the first ends.
	maxOfSource = 16
)

// connections is a listener that limits the number of connections, in total and from each source. A connection beyond a limit never waits.
// It takes the place of the oldest connection, of its source or of all, whose client has not yet shown that it may use the server
// ([admit]). If all clients have shown it, the new connection is closed. So nobody keeps others out by idle connections. It is safe for
// concurrent use.
type connections struct {
	net.Listener
	total, ofSource int

	mu   sync.Mutex // guards open
	open []*connection
}

// limited limits the connections of a listener.
func limited(l net.Listener) *connections {
	return &connections{Listener: l, total: maxConnections, ofSource: maxOfSource}
}

// Accept implements [net.Listener].
func (l *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: accepted, source: sourcePrefix(accepted.RemoteAddr()), within: l}
		replaced, ok := l.enter(c)
		if replaced != nil {
			_ = replaced.Close()
		}
		if ok {
			return c, nil
		}
		_ = accepted.Close()
	}
}

// enter adds a connection if there is room, or if another connection can make room; it returns the latter.
func (l *connections) enter(c *connection) (replaced *connection, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(other *connection) bool { return other.source == c.source }
	switch {
	case l.count(same) >= l.ofSource:
		replaced = l.oldest(same)
	case len(l.open) >= l.total:
		replaced = l.oldest(func(*connection) bool { return true })
	default:
		l.open = append(l.open, c)
		return nil, true
	}
	if replaced == nil {
		return nil, false
	}
	l.remove(replaced)
	l.open = append(l.open, c)
	return replaced, true
}

func (l *connections) count(is func(*connection) bool) int {
	n := 0
	for _, c := range l.open {
		if is(c) {
			n++
		}
	}
	return n
}

// oldest returns the oldest connection whose client has not yet shown that it may use the server; nil if all have.
func (l *connections) oldest(is func(*connection) bool) *connection {
	i := slices.IndexFunc(l.open, func(c *connection) bool { return is(c) && !c.admitted.Load() })
	if i < 0 {
		return nil
	}
	return l.open[i]
}

func (l *connections) remove(c *connection) {
	l.open = slices.DeleteFunc(l.open, func(other *connection) bool { return other == c })
}

// connection is a connection that is counted until it is closed.
type connection struct {
	net.Conn
	source netip.Prefix
	within *connections
	// admitted: its client has shown that it may use the server.
	admitted atomic.Bool
}

// Close implements [net.Conn]. It may be called several times.
func (c *connection) Close() error {
	c.within.mu.Lock()
	c.within.remove(c)
	c.within.mu.Unlock()
	return c.Conn.Close()
}

// sourcePrefix returns who connects: an IPv4 address, or an IPv6 network of 64 bits, in which one host may have any address.
func sourcePrefix(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(ip, bits).Masked()
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// withConnection adds a connection that [connections] accepted to the context of its requests.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// admit records that the client of a request's connection has shown that it may use the server.
func admit(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.admitted.Store(true)
	}
}
