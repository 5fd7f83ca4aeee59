// Package remote runs commands in the lab machine: a server for the machine and a client in the manner of os/exec.
//
// One connection is one command. The server speaks first (a frame with the machine's boot ID), for QEMU's user
// network accepts connections on behalf of a machine that is not up. Frames are a type, a length and a payload.
// A connection that breaks kills the command with its process group. There is no authentication: the server is
// reached through a port on the host's loopback, by anyone who may connect there.
package remote
