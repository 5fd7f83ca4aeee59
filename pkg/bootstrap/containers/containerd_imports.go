package containers

import (
	"fmt"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

// placeDropIn finds the directory of a configuration that somebody else writes: one
// that it imports.
func (c *containerd) placeDropIn() bool {
	if c.at.maker == nil {
		return true
	}
	t, err := config.Parse(c.node.Read(c.at.main))
	if err != nil {
		c.refuse(c.at.main, err.Error(), "Mend the file.")
		return false
	}
	for _, pattern := range t.Setting("", "imports").List() {
		if path.IsAbs(pattern) && path.Base(pattern) == "*.toml" && !strings.Contains(path.Dir(pattern), "*") {
			c.at.dropIn = path.Join(path.Dir(pattern), dropInName)
			return true
		}
	}
	c.refuse(c.at.main, fmt.Sprintf("%s is written by %s at each start, and imports no directory: an edit of it would be lost.", c.at.main, c.at.maker.name),
		c.at.maker.fix)
	return false
}

// imported returns the main file with our drop-in imported, by it or by what it
// imports.
func (c *containerd) imported(dropIn []byte) (string, bool) {
	for _, file := range c.load(c.text, dropIn).Files {
		if file.Path == c.at.dropIn {
			return c.text, c.startedWith()
		}
	}
	main, err := addImport(c.at.main, c.text, c.pattern())
	if err != nil {
		c.refuse(c.at.main, "The import can't be added: "+err.Error(), "Add it by hand: imports = [\""+c.pattern()+"\"]")
		return "", false
	}
	return main, c.startedWith()
}

// startedWith refuses a file that containerd is not started with, and that leaves out
// the one that it is.
func (c *containerd) startedWith() bool {
	if c.at.vendor == "" {
		return true
	}
	for _, file := range c.load(c.text, nil).Files {
		if file.Path == c.at.vendor {
			return true
		}
	}
	c.refuse(c.at.main, fmt.Sprintf("%s is there, but containerd is started with %s, and it does not import that.", c.at.main, c.at.vendor),
		"Remove it, or add imports = [\""+c.at.vendor+"\"] to it, or have containerd started with it.")
	return false
}

// pattern returns what is imported: the directory of drop-ins, or of it ours alone
// where there are others, which nobody has asked for so far.
func (c *containerd) pattern() string {
	dir := path.Dir(c.at.dropIn)
	names, _ := c.node.list(dir)
	for _, name := range names {
		if name != dropInName && path.Ext(name) == ".toml" {
			return path.Join(dir, "kata-gpu*.toml")
		}
	}
	return path.Join(dir, "*.toml")
}
