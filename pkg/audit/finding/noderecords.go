package finding

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// NodeRecords are what a node itself keeps of who has its functions: for whoever
// compares them with what others say, as `kata-vfio-audit cluster` does with the
// API server.
type NodeRecords struct {
	// Claims are those of the journal, by UID.
	Claims []ClaimRecord `json:"claims"`
	// Ledger is nil where there is none, or it could not be read.
	Ledger *LedgerRecord `json:"ledger,omitempty"`
}

// ClaimRecord is a claim's record.
type ClaimRecord struct {
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

// LedgerRecord is how far a ledger has come.
type LedgerRecord struct {
	Events int64 `json:"events"`
	// Checkpoint is the signed one behind the last event, its lines joined by spaces: kept
	// elsewhere, the report is an anchor.
	Checkpoint string `json:"checkpoint"`
	// Key is the node's public key, as it lies with the ledger.
	Key string `json:"key"`
}
