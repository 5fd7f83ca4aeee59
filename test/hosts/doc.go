// Package hosts tries the programs on nodes as people reported them: sysfs, files and claims of public reports, in testdata, with the words
// that the programs must say of them. Identities are neutral.
//
// A row of testdata describes a node, and the commands that are run on it. A node is a tree of files, and the commands get it by --root, or
// by chroot where they must take it for the running machine. A command that answers wrongly has the right words and the field wrong, which
// says what it answers instead: it fails when the answer becomes right, and the field goes.
package hosts
