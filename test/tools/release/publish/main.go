// Command publish takes a release that is made to where people get it: the images and the chart to a registry, and the
// manifest of the kubectl plugin to a Git repository for krew.
//
//	publish -from bin/release -version 1.2.3 -registry ghcr.io/kata-vfio -o published.json
//
// It compares all files with their checksums first. It never moves a tag: a version that is there already must have
// the same digest, so that a publication that failed halfway can be repeated.
package main

import "github.com/kata-vfio/kata-vfio/test/tools/release/commandline"

func main() { commandline.Run("publish", parse) }
