package victim

import "github.com/kata-vfio/kata-vfio/pkg/journal"

// AftermathFile is where the host tells what a machine should find, in its shared folder, as JSON of an Aftermath.
const AftermathFile = "aftermath.json"

// Aftermath is what should be left of a victim's claim.
type Aftermath struct {
	UID       string
	Addresses []string
	// State is that of the record, empty for no record.
	State journal.State
	// Renumbered is set when the first function's group must have another number than in the record.
	Renumbered bool
}
