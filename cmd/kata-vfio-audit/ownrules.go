package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// addRulesFlag adds the flag that names an organization's own rules.
func addRulesFlag(cmd *cobra.Command, own *[]string) {
	cmd.Flags().StringArrayVar(own, "rules", nil, "`FILE` of your own rules, or directory of such files (YAML; see `kata-vfio-audit rules test`); may be repeated")
	_ = cmd.MarkFlagFilename("rules", "yaml", "yml")
}

// flagRules returns the rules, with those of the command's flag --rules.
func flagRules(cmd *cobra.Command) (*rule.Catalogue, error) {
	own, err := cmd.Flags().GetStringArray("rules")
	if err != nil { // a command without the flag
		own = nil
	}
	return readRules(own)
}

// readRules returns the rules of the product, with those of files and directories.
func readRules(own []string) (*rule.Catalogue, error) {
	all, err := rule.ReadCatalogue()
	if err != nil {
		return nil, err
	}
	for _, name := range own {
		files, err := ruleFiles(name)
		if err != nil {
			return nil, command.Usagef("your own rules: %w", err)
		}
		for _, file := range files {
			content, err := readRuleFile(file)
			if err != nil {
				return nil, command.Usagef("your own rules: %w", err)
			}
			if err := all.AddOwn(file, content); err != nil {
				return nil, command.Usagef("your own rules: %w", err)
			}
		}
	}
	return all, nil
}

// ruleFiles returns the file, or the files with rules of a directory. A mounted ConfigMap has hidden files besides.
func ruleFiles(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("directory %s has no .yaml or .yml file", name)
	}
	return files, nil
}

// readRuleFile reads a file up to the largest size.
func readRuleFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	// One byte more than permitted, so that the reader of the rules sees that a file is too long, and not a cut one.
	content, err := io.ReadAll(io.LimitReader(f, rule.MaxOwnRules+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}

// notAsked returns a sentence for each file of rules that was used when the archive was collected, and that this audit does not
// use.
func notAsked(collected, asked []rule.File) []string {
	var all []string
	for i := range collected {
		f := &collected[i]
		// By the hash: the same rules may have another path here.
		if !slices.ContainsFunc(asked, func(a rule.File) bool { return a.SHA256 == f.SHA256 }) {
			all = append(all, "these rules were asked when the archive was collected, and are not asked now: "+f.Words()+"; pass their file with --rules")
		}
	}
	return all
}
