package ledger

// Provided is one value that was set for a function: which part of the plugin set it ("xe"), its name there ("exec_quantum_ms"), and
// the value.
type Provided struct {
	By    string `json:"by"`
	Name  string `json:"name"`
	Value string `json:"value"`
}
