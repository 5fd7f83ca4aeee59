// Package v1alpha1 holds what users write for kata-vfio, in the API group
// resource.kata-vfio.dev, version v1alpha1: the opaque parameters VFIOConfig
// and VFConfig of a DeviceClass or ResourceClaim, and the NodeConfig file of a
// node. It decodes strictly (an unknown or mistyped field is an error that
// names it), fills in defaults, and validates.
package v1alpha1
