package fabric

import "context"

// Manager is NVIDIA's Fabric Manager, as a node calls it. A call returns a [*CodeError] if Fabric Manager answered with a code. It returns
// another error if Fabric Manager could not be asked, or did not answer before the context's deadline: it is then unknown what Fabric
// Manager did. An implementation never waits longer than the context allows, whatever NVIDIA's library does. Calls may be concurrent.
type Manager interface {
	// Partitions returns all partitions. The list has passed [List.Check].
	Partitions(ctx context.Context) (List, error)
	// Activate connects the GPUs of a partition by links, and Deactivate ends the links. Both may return before the list shows the change:
	// the caller reads the list.
	Activate(ctx context.Context, id int) error
	Deactivate(ctx context.Context, id int) error
	// SetActivated tells a Fabric Manager that was started with --restart which partitions are active. No ID may occur twice. Fabric
	// Manager routes only these partitions. It answers no other call before this one, and exits if it does not get it within 60 s.
	SetActivated(ctx context.Context, ids []int) error
}
