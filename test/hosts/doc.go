// Package hosts tries the programs on nodes as people reported them: sysfs, files and claims of public reports, in testdata,
// with the words that the programs must say of them. Identities are neutral.
//
// A row of testdata describes a node, and the commands that are run on it. A node is a tree of files. The commands get it by
// --root, or by chroot if they must take it for the running machine. A row for a command that still answers wrongly has the
// right words, and in the field wrong the words of its present answer. The test fails as soon as the answer becomes right, so
// that the field is removed.
package hosts
