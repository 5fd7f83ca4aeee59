// Package allocator tests that the allocators of the oldest and the newest supported Kubernetes allocate claims from what the
// plugin publishes: the golden files of package publish. It is a module of its own, because a module has one version of
// Kubernetes: go.mod has the oldest, and newest.mod the newest.
package allocator
