package serving

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
)

// Loopback reports whether an address with a port is a literal loopback address.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && net.ParseIP(host).IsLoopback()
}

// ListenProfiles opens a loopback address for Go's profiles. It refuses other addresses, because profiles need no
// credentials and show the program's memory.
func ListenProfiles(ctx context.Context, addr string) (*Server, error) {
	if !Loopback(addr) {
		return nil, fmt.Errorf("serve profiles at %s: not a loopback address", addr)
	}
	return Listen(ctx, addr, Profiles(), nil)
}

// Profiles returns the handler of /debug/pprof/.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
