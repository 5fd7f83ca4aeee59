package command

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version returns the command "version", which prints text: a line that names
// the build.
func Version(text string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
}

// Build returns the program's module version and Go's, as the linker recorded
// them: "v1.2.3 (go1.26.1)", or "unknown".
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s (%s)", info.Main.Version, info.GoVersion)
}
