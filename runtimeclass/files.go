// Package runtimeclass has the fragments of configuration beside it as files, for
// bootstrap, which lays them down.
package runtimeclass

import "embed"

// Files are the fragments, by their paths here.
//
//go:embed containerd crio kata systemd
var Files embed.FS
