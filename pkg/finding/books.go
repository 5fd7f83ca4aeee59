package finding

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// Books are what a node itself keeps of who has its functions: for whoever
// compares them with what others say, as `kata-vfio-audit cluster` does with the
// API server.
type Books struct {
	// Claims are those of the journal, by UID.
	Claims []BookedClaim `json:"claims"`
	// Ledger is nil where there is none, or it could not be read.
	Ledger *BookedLedger `json:"ledger,omitempty"`
}

// BookedClaim is a claim's record.
type BookedClaim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is that of package journal: "prepared", "quarantined".
	State string `json:"state"`
	// Since is when the state was entered, RFC 3339 in UTC.
	Since string `json:"since,omitempty"`
	// Devices are the functions that the claim has.
	Devices []pci.Address `json:"devices"`
}

// BookedLedger is how far a ledger has come.
type BookedLedger struct {
	Events int64 `json:"events"`
	// Checkpoint is the signed one behind the last event, its lines joined by spaces: kept
	// elsewhere, the report is an anchor.
	Checkpoint string `json:"checkpoint"`
	// Key is the node's public key, as it lies with the ledger.
	Key string `json:"key"`
}
