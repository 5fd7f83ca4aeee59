package fabric

import "context"

// Manager is NVIDIA's Fabric Manager, as a node asks it. A call returns a [*CodeError] if Fabric Manager answered with a code, and
// another error if it could not be asked, or did not answer before the context's deadline: then nobody knows what it did. An
// implementation never waits longer than the context allows, whatever NVIDIA's library does. Calls may be made side by side.
type Manager interface {
	// Partitions returns all partitions. The list has passed [List.Check].
	Partitions(ctx context.Context) (List, error)
	// Activate makes the links between the GPUs of a partition, and Deactivate ends them. They return before or after
	// the list shows it: the caller reads the list.
	Activate(ctx context.Context, id int) error
	Deactivate(ctx context.Context, id int) error
	// SetActivated tells a Fabric Manager that was started with --restart which partitions are active, no id twice. It routes only
	// these, answers no other call before, and exits if it is not told within 60 s.
	SetActivated(ctx context.Context, ids []int) error
}
