// Package manager asks NVIDIA's Fabric Manager for the partitions of a board, and activates and deactivates them. It links
// no library of NVIDIA: a program makes each call and is ended at the call's deadline. The program is kata-vfio's helper
// kata-vfio-fabric, or NVIDIA's fmpm.
package manager
