package serving

import (
	"io"
	"net/http"
)

// Probes returns the handler of /healthz and /readyz, which answer without credentials:
// the kubelet has none. ready returns why the plugin is not ready, empty when it is.
func Probes(ready func() string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ready()) })
	return mux
}

// answer says "ok", or what is wrong with status 503.
func answer(w http.ResponseWriter, problem string) {
	if problem != "" {
		http.Error(w, problem, http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // a prober that hung up is no error of ours
}
