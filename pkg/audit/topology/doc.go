// Package topology draws a node's PCIe tree: as an SVG for people and as a
// Graphviz graph for machines. Layout is apart from drawing: [Arrange] settles
// where each box and text goes, [WriteSVG] writes it down.
package topology
